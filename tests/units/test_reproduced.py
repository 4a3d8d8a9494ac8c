"""When the record of a wheel stands for a second build, and when it does not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from artf_cli.paths import REPO
from common import reproduced
from common.reproduced import Made

NOW = Made("i", {"g++-12": "12.2.0-14", "bazel": "4.2.3"}, "d-1-cp311-cp311-a.whl", "5")


def test_the_same_making_leaves_no_difference() -> None:
    assert reproduced.differences(NOW, NOW) == []
    # Other bytes of the same making are what the test of the wheel fails for.
    other = replace(NOW, sha256="6")
    assert reproduced.differences(other, NOW) == []
    assert other != NOW


@pytest.mark.parametrize(
    ("recorded", "why"),
    [
        (None, "there is no reproduced.json"),
        (replace(NOW, inputs="j"), "the files that a build reads have changed"),
        (replace(NOW, wheel="d-1-cp310-cp310-a.whl"), "the record is of d-1-cp310-cp310-a.whl"),
        (replace(NOW, tools={"bazel": "4.2.3"}), "g++-12: none, now 12.2.0-14"),
        (
            replace(NOW, tools={**NOW.tools, "bazel": "6.5.0"}),
            "bazel: 6.5.0, now 4.2.3",
        ),
    ],
)
def test_another_making_says_what_differs(recorded: Made | None, why: str) -> None:
    assert reproduced.differences(recorded, NOW) == [why]


def test_unknown_tools_are_never_the_recorded_ones() -> None:
    unknown = replace(NOW, tools={})
    assert reproduced.differences(unknown, unknown) == [
        "the versions of the tools are not known here"
    ]


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    assert reproduced.load(path) is None
    reproduced.save(NOW, path)
    assert reproduced.load(path) == NOW


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in ("build", "patches", "third_party", "scripts"):
        shutil.copytree(REPO / name, tmp_path / name)
    shutil.copy(REPO / "WORKSPACE", tmp_path)
    return tmp_path


def test_every_input_counts(copy: Path) -> None:
    """Each kind of file that decides bytes changes the hash; the record itself does not."""

    def now() -> str:
        return reproduced.hash_of(reproduced.input_files(copy), copy)

    seen = {now()}
    assert seen == {reproduced.hash_of(reproduced.input_files())}
    (copy / "build/reproduced.json").write_text("{}")
    (copy / "scripts/artf_cli/doctor.py").write_text("")
    assert now() in seen
    for name in (
        "WORKSPACE",
        "build/pins.toml",
        "build/flags.bzl",
        "build/BUILD",
        "build/bazelrc",
        "build/exports.lds",
        "build/requirements/tools.txt",
        "patches/grpc/series",
        "third_party/ar_grpc/fabric/ring.h",
        "third_party/ar_grpc/tensorflow/BUILD",
        "scripts/artf_cli/wheel.py",
    ):
        with (copy / name).open("a") as file:
            file.write("\n")
        assert now() not in seen, name
        seen.add(now())
    (copy / "third_party/ar_grpc/new.cc").write_text("")
    assert now() not in seen


def test_all_modules_that_run_in_a_build_are_inputs() -> None:
    code = (
        "import sys, artf_cli.sources, artf_cli.wheel\n"
        "print(*[name.partition('.')[2] for name in sys.modules if name.startswith('artf_cli.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= set(reproduced.MODULES)


def test_the_tools_of_this_machine_are_known() -> None:
    if shutil.which("dpkg-query") is None:
        pytest.skip("no dpkg-query: only Debian's package versions are recorded")
    found = reproduced.tools()
    if not found:
        pytest.skip("no Bazel yet: scripts/artf build installs it")
    assert found["libc6-dev"]
    assert found["bazel"].split(".")[0].isdigit()
    assert any(name.startswith("g++") for name in found)
