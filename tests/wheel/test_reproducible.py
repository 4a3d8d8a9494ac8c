"""The same bytes from another folder and an empty cache."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import pytest

from artf_cli import pins
from artf_cli.paths import REPO, cache_dir
from common import reproduced
from common.builds import build


def python_of(wheel: Path) -> str:
    return wheel.name.split("-")[2]


@pytest.mark.timeout(2400)
def test_two_builds_from_empty_caches_give_the_same_bytes(
    wheel: Path, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """The other build is the recorded one, or where that says nothing of this one's making, or
    nothing is to be left out, a build in another folder with a cache of its own."""
    now, recorded = reproduced.made(wheel), reproduced.load()
    why = reproduced.differences(recorded, now)
    record = pytestconfig.getoption("--record-reproduced")
    if recorded is not None and not why:
        assert now == recorded, "the recorded build of the same inputs gave other bytes"
        if not (record or pytestconfig.getoption("--full")):
            return
    tree = tmp_path / "another" / "folder"
    tree.parent.mkdir()
    shutil.copytree(
        REPO, tree, ignore=shutil.ignore_patterns("dist", ".git", "bazel-*", "__pycache__")
    )
    cache = {"ARTF_CACHE": str(tmp_path / "cache")}
    # The suite `containers` runs beside this one, and waits for servers.
    said = build("--python", python_of(wheel), tree=tree, before=["nice"], env=cache)
    again = Path(said["wheel"])
    assert again.parent == tree / "dist"
    assert again.name == wheel.name
    assert pins.sha256_of(again) == now.sha256
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    if record:
        reproduced.save(now)
    elif why:
        warnings.warn(
            f"the second build was made, since {'; '.join(why)}. Record it: "
            "scripts/artf test --only wheel -- --record-reproduced -k two_builds",
            stacklevel=1,
        )


def compiled() -> dict[Path, int]:
    """What Bazel has compiled and linked in this cache, and when."""
    found = (cache_dir() / "bazel").glob("*/execroot/*/bazel-out")
    files = (path for folder in found for path in folder.rglob("*.*"))
    return {path: path.stat().st_mtime_ns for path in files if path.suffix in {".o", ".so"}}


@pytest.mark.timeout(600)
def test_a_build_with_nothing_changed_takes_seconds(wheel: Path) -> None:
    """Alone it takes 25 s. Beside other suites it takes longer, and what tells is that nothing is
    compiled or linked again."""
    before, then = pins.sha256_of(wheel), compiled()
    assert then
    report = build("--python", python_of(wheel))
    assert report["build_seconds"] < 300, report
    assert Path(report["wheel"]) == wheel
    assert pins.sha256_of(wheel) == before
    now = compiled()
    assert {path: now.get(path) for path in then} == then
