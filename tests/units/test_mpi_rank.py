"""Programs that run in the seats of a job; here the seats are processes, and nothing is an MPI."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mpi_rank
import psutil
import pytest

from common.ar import eventually

_PROGRAM = [sys.executable, mpi_rank.__file__]


class Seats:
    """As many as a launcher would have started, each with a rank of its own."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.processes = [
            subprocess.Popen(
                [*_PROGRAM, "seat", str(folder)], env={**os.environ, "PMI_RANK": str(rank)}
            )
            for rank in range(count)
        ]

    def run(self, *command: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*_PROGRAM, "run", str(self.folder), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **env},
            text=True,
        )

    def statuses(self) -> list[int]:
        return [process.wait(20) for process in self.processes]


@pytest.fixture
def two_seats(tmp_path: Path) -> Iterator[Seats]:
    seats = Seats(tmp_path, 2)
    yield seats
    for process in seats.processes:
        process.kill()
        process.wait()


def test_a_command_has_its_own_streams_and_status_and_its_seats_rank(two_seats: Seats) -> None:
    script = 'read word; echo "$PMI_RANK $MINE $word"; echo to stderr >&2; exit 3'
    # What the one who asks was told by another launcher is not the rank's.
    programs = [two_seats.run("sh", "-c", script, MINE="own", PMI_RANK="7") for _ in range(2)]
    said = [program.communicate("given\n", 20) for program in programs]
    assert sorted(out for out, _ in said) == ["0 own given\n", "1 own given\n"]
    assert [err for _, err in said] == ["to stderr\n"] * 2
    assert [program.returncode for program in programs] == [3, 3]
    assert two_seats.statuses() == [3, 3]


def test_a_command_ends_with_the_one_that_stands_for_it(two_seats: Seats) -> None:
    program = two_seats.run("sleep", "600")
    real = psutil.Process(mpi_rank.pid_of(two_seats.folder, program.pid))
    assert real.cmdline() == ["sleep", "600"]
    program.kill()
    program.wait()
    real.wait(20)
    assert eventually(lambda: any(p.poll() == 128 + 9 for p in two_seats.processes))


def test_a_signal_that_ends_a_command_ends_the_one_that_stands_for_it(two_seats: Seats) -> None:
    """The seat ends with a status: a launcher may end the whole job for a signal."""
    program = two_seats.run("sh", "-c", "kill -ABRT $$")
    assert program.wait(20) == -signal.SIGABRT
    assert eventually(lambda: any(p.poll() == 128 + 6 for p in two_seats.processes))


def test_a_command_ends_with_its_seat(two_seats: Seats) -> None:
    program = two_seats.run("sleep", "600")
    real = psutil.Process(mpi_rank.pid_of(two_seats.folder, program.pid))
    psutil.Process(real.ppid()).kill()
    real.wait(20)
    _, err = program.communicate(timeout=20)
    assert program.returncode == 1
    assert err == "the MPI job has ended this rank: see its launcher's output\n"


def test_there_are_no_more_ranks_than_seats(
    two_seats: Seats, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        assert two_seats.run("true").wait(20) == 0
    monkeypatch.setattr(mpi_rank, "_SEAT_S", 0.1)
    with pytest.raises(SystemExit, match=r"no rank of the MPI job in .* is free, 0.1 s long"):
        mpi_rank._take_seat(two_seats.folder)
    with pytest.raises(TimeoutError, match=r"no rank of the MPI job in .* runs for process 1"):
        mpi_rank.pid_of(two_seats.folder, 1)
