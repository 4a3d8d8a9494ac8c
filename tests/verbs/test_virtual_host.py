"""Tests inside a virtual host: a pytest of its own, whose tests run there, tells what it saw."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from common.repeated import few
from common.virtual_host import INSIDE

# The first one waits until the kernel is compiled.
pytestmark = pytest.mark.timeout(900)

_TESTS = Path(__file__).parents[1]
TESTS = """
import os, time
from pathlib import Path
import pytest

pytestmark = pytest.mark.virtual_host("rxe")
DEVICE = Path("/sys/class/infiniband/rxe0")

@pytest.fixture
def broken():
    raise ValueError("never set up")

def test_passes(record_property):
    assert DEVICE.exists() and os.environ["ARTF_INSIDE_HOST"] == "rxe"
    assert Path(os.environ["RELEASED"]).exists()
    record_property("seen", os.environ["TOLD"])

@pytest.mark.parametrize("name", ["a/b [c]", "d::e"])
def test_is_parametrized(name):
    time.sleep(0.5)
    assert name != "d::e"

def test_fails():
    print("said before")
    assert [1, 2] == [1, 3]

def test_skips():
    pytest.skip("for a reason")

@pytest.mark.xfail(strict=True)
def test_is_expected_to_fail():
    raise AssertionError

def test_has_a_broken_fixture(broken):
    pass

@pytest.mark.slow
def test_is_left_out():
    raise AssertionError

@pytest.mark.virtual_host("siw")
def test_in_the_other_driver():
    assert Path("/sys/class/infiniband/siw0").exists() and not DEVICE.exists()
"""
HERE = """
import os
from pathlib import Path
from common.virtual_host import before_hosts

def test_here(request):
    before_hosts(request.config, Path(os.environ["RELEASED"]).touch)
    assert "ARTF_INSIDE_HOST" not in os.environ
    assert not Path("/sys/class/infiniband/rxe0").exists()
"""
DIES = """
import subprocess
import pytest

pytestmark = pytest.mark.virtual_host("rxe")

def test_before():
    pass

def test_switches_off():
    print("never told", flush=True)
    subprocess.run(["sync"])
    subprocess.run(["busybox", "poweroff", "-f"])

def test_after():
    pass
"""


@dataclass
class Seen:
    """What a pytest told: each test's verdict and words, and all of its output."""

    status: int
    output: str
    verdicts: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)


def run_pytest(folder: Path, *arguments: str, **environment: str) -> Seen:
    """A pytest in `folder`, which has this project's conftest.py."""
    (folder / "conftest.py").write_text((_TESTS / "conftest.py").read_text())
    (folder / "pytest.ini").write_text("[pytest]\ntimeout = 100\naddopts = --strict-markers\n")
    report = folder / "report.xml"
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}"]
    paths = os.pathsep.join([str(_TESTS), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, **environment}
    done = subprocess.run(
        [*words, "--durations=3", *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
    )
    seen = Seen(done.returncode, done.stdout + done.stderr)
    print(seen.output)
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.attrib["name"]
        told = [each for each in case if each.tag in ("failure", "error", "skipped")]
        seen.verdicts[name] = told[0].tag if told else "passed"
        seen.texts[name] = "".join(f"{each.get('message')} {each.text}" for each in case)
        seen.seconds[name] = float(case.attrib["time"])
        for each in case.iter("property"):
            seen.properties[each.attrib["name"]] = each.attrib["value"]
    return seen


def test_what_runs_inside_is_told_outside(tmp_path: Path) -> None:
    """Each verdict with its words, and counts, durations and properties with them."""
    (tmp_path / "test_inside.py").write_text(TESTS)
    (tmp_path / "test_there.py").write_text(HERE)
    released = tmp_path / "released"
    seen = run_pytest(tmp_path, TOLD="two\nlines", RELEASED=str(released))
    assert seen.status == 1
    assert list(seen.verdicts.items()) == [
        ("test_here", "passed"),
        ("test_passes", "passed"),
        ("test_is_parametrized[a/b [c]]", "passed"),
        ("test_is_parametrized[d::e]", "failure"),
        ("test_fails", "failure"),
        ("test_skips", "skipped"),
        ("test_is_expected_to_fail", "skipped"),
        ("test_has_a_broken_fixture", "error"),
        ("test_in_the_other_driver", "passed"),
    ]
    assert "assert [1, 2] == [1, 3]" in seen.texts["test_fails"]
    assert "said before" in seen.output
    assert "for a reason" in seen.texts["test_skips"]
    assert "never set up" in seen.texts["test_has_a_broken_fixture"]
    assert seen.properties == {"seen": "two\nlines"}
    assert 0.5 <= seen.seconds["test_is_parametrized[a/b [c]]"] < 30
    assert "call     test_inside.py::test_is_parametrized[" in seen.output
    counts = "2 failed, 4 passed, 1 skipped, 1 deselected, 1 xfailed, 1 error in "
    assert counts in seen.output
    assert "1 deselected: slow (--run-slow)" in seen.output


def test_a_host_that_dies_fails_what_it_did_not_tell(tmp_path: Path) -> None:
    (tmp_path / "test_dies.py").write_text(DIES)
    seen = run_pytest(tmp_path)
    assert (seen.status, list(seen.verdicts.values())) == (1, ["passed", "failure", "error"])
    for name in ("test_switches_off", "test_after"):
        assert "the virtual RDMA host (rxe) ended with status 1" in seen.texts[name]
        assert "died before its command ended" in seen.texts[name]


@pytest.mark.parametrize(("ci", "verdict"), [("", "skipped"), ("true", "error")])
def test_without_a_host_tests_skip_but_in_ci(tmp_path: Path, ci: str, verdict: str) -> None:
    (tmp_path / "test_dies.py").write_text(DIES)
    # What a host's own folder must not have in its path.
    blank = tmp_path / "a blank"
    blank.mkdir()
    seen = run_pytest(tmp_path, "-k", "after", CI=ci, TMPDIR=str(blank))
    assert seen.verdicts == {"test_after": verdict}
    assert "no virtual RDMA host: " in seen.texts["test_after"]
    assert "has a blank in its path" in seen.texts["test_after"]


@pytest.mark.parametrize("arguments", few(["", '"mlx5"', '"rxe", "siw"'], '"mlx5"'))
def test_a_wrong_driver_is_an_error(tmp_path: Path, arguments: str) -> None:
    text = f"import pytest\n@pytest.mark.virtual_host({arguments})\ndef test_it(): pass\n"
    (tmp_path / "test_wrong.py").write_text(text)
    (tmp_path / "conftest.py").write_text((_TESTS / "conftest.py").read_text())
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(_TESTS)}
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 4
    assert "test_it: virtual_host() takes one of rxe, siw" in done.stderr
    assert INSIDE not in os.environ
