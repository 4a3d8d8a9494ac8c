"""The times after faults are kept whole or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rdma_host

_CONFTEST = """
import json
from pathlib import Path

import pytest

from rdma_host.fault_times import FaultRecorder, FaultTimes

TIMES = FaultTimes()


def pytest_configure(config):
    keep = lambda rows: Path(__file__).with_name("kept.json").write_text(json.dumps(rows))
    config.pluginmanager.register(FaultRecorder(TIMES, keep, "THE COMMAND"))


@pytest.fixture(scope="session")
def fault_times():
    return TIMES
"""
_CASES = """
import pytest


def test_first(fault_times):
    fault_times.add("a fault", "rxe", "it is seen", 0.5)


def test_second(fault_times):
    {second}
    fault_times.add("a fault", "siw", "it is seen", 0.25)


def test_without_times():
    {without}
"""
_BEFORE = "of before"


def _run(
    folder: Path, *arguments: str, second: str = "pass", without: str = "pass"
) -> tuple[int, str]:
    """(exit status, output) of pytest in `folder`, where a record of before lies."""
    (folder / "kept.json").write_text(_BEFORE)
    (folder / "conftest.py").write_text(_CONFTEST)
    (folder / "test_cases.py").write_text(_CASES.format(second=second, without=without))
    paths = [str(Path(rdma_host.__file__).parents[1]), *filter(None, sys.path)]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


def test_all_have_passed(tmp_path: Path) -> None:
    status, output = _run(tmp_path)
    assert status == 0, output
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert [(row["driver"], row["seconds"]) for row in kept] == [("rxe", [0.5]), ("siw", [0.25])]


@pytest.mark.parametrize(
    ("second", "without", "expected"),
    [
        ("raise KeyboardInterrupt", "pass", pytest.ExitCode.INTERRUPTED),
        ("pass", "raise KeyboardInterrupt", pytest.ExitCode.INTERRUPTED),
        ("assert not 'right'", "pass", pytest.ExitCode.TESTS_FAILED),
        ("pass", "assert not 'right'", pytest.ExitCode.TESTS_FAILED),
        ("pytest.skip('no host')", "pass", pytest.ExitCode.TESTS_FAILED),
    ],
)
def test_what_was_kept_stays(
    tmp_path: Path, second: str, without: str, expected: pytest.ExitCode
) -> None:
    status, output = _run(tmp_path, second=second, without=without)
    assert status == expected, output
    assert (tmp_path / "kept.json").read_text() == _BEFORE
    assert "the times after faults are not kept" in output


def test_a_part_of_the_tests_is_refused(tmp_path: Path) -> None:
    status, output = _run(tmp_path, "-k", "first")
    assert status == pytest.ExitCode.USAGE_ERROR, output
    assert "--record-faults needs 1 tests more than were chosen: THE COMMAND" in output
    assert (tmp_path / "kept.json").read_text() == _BEFORE
