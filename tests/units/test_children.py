"""Suites that are interrupted, alone or side by side, end as one does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from artf_cli.testing import children

PROGRAM = """
import pathlib, sys, time
folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
try:
    print(f"{name} begins", flush=True)
    (folder / f"{name}-up").touch()
    time.sleep(600)
finally:
    time.sleep(1)
    print(f"{name} ends", flush=True)
    (folder / f"{name}-down").touch()
"""


@pytest.mark.parametrize("names", [["one"], ["one", "two"]])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_interrupted_suites_take_their_fixtures_down(
    tmp_path: Path, names: list[str], number: signal.Signals
) -> None:
    """What an interrupted test has started outside of its process must not stay."""
    (tmp_path / "suite.py").write_text(PROGRAM)
    code = (
        "import os, pathlib, signal, sys\nfrom artf_cli import cli\n"
        "from artf_cli.testing import children\n"
        "signal.signal(signal.SIGTERM, cli._on_signal)\n"
        "folder, *names = sys.argv[1:]\n"
        "logs = [pathlib.Path(folder, name) if len(names) > 1 else None for name in names]\n"
        "children.run([children.Command([sys.executable, folder + '/suite.py', folder, name],\n"
        "                               os.environ, log, name) for name, log in zip(names, logs)])"
    )
    command = [sys.executable, "-c", code, str(tmp_path), *names]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        # A test run in the background of a shell has it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        limit = time.monotonic() + 30
        while not all((tmp_path / f"{name}-up").exists() for name in names):
            assert time.monotonic() < limit
            time.sleep(0.05)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        said, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == (128 + number if number == signal.SIGTERM else -number)
    for name in names:
        assert (tmp_path / f"{name}-down").exists()
        assert f"{name} begins\n{name} ends\n" in said


TAKES_PART = """
import pathlib, sys, time
here = pathlib.Path(sys.argv[1])
(here / sys.argv[2]).touch()
time.sleep(0.3)
print(len(list(here.iterdir())))
(here / sys.argv[2]).unlink()
"""


def test_no_more_than_wanted_run_at_a_time(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    names = [f"program{number}" for number in range(5)]
    commands = [
        children.Command(
            [sys.executable, "-c", TAKES_PART, str(here), name], os.environ, tmp_path / name, name
        )
        for name in names
    ]
    ends = children.run(commands, at_once=2)
    assert [end.status for end in ends] == [0] * 5
    assert all(0 < end.cpu_s < end.wall_s and end.wall_s > 0.3 for end in ends), ends
    said = capfd.readouterr().out.split("\n")
    assert sorted(line for line in said if line.startswith("-")) == [
        f"---- {name} ----" for name in names
    ]
    counts = {line for line in said if line.isdigit()}
    assert "2" in counts and counts <= {"1", "2"}
