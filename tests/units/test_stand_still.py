"""A process that is told to stop, and a test that goes on only once it has."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.processes import stand_still

# The thread that the kernel wakes for SIGSTOP, the first one, gets a processor last.
PROGRAM = """
import os, threading
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
def busy():
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    while True:
        pass
for _ in range(8):
    threading.Thread(target=busy, daemon=True).start()
print("up", flush=True)
busy()
"""


@pytest.fixture
def busy() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process.pid
        process.kill()


def ticks(pid: int) -> list[str]:
    """What each thread has had of the processors, in nanoseconds."""
    return [
        (task / "schedstat").read_text().split()[0]
        for task in sorted(Path(f"/proc/{pid}/task").iterdir())
    ]


def test_all_threads_stand_still(busy: int) -> None:
    stand_still(busy)
    before = ticks(busy)
    assert len(before) == 9
    time.sleep(0.3)
    assert ticks(busy) == before
