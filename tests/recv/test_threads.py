"""Threads belong to a server of `grpc+ar`: by its own configuration, whoever else is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.preload import preloadable
from common.processes import run_program
from common.protocols import AR, STOCK
from common.repeated import few

pytestmark = pytest.mark.timeout(180)

HERE = Path(__file__).parent
STEPS = 200


@pytest.mark.parametrize("first", few([AR, STOCK], AR))
def test_a_servers_threads_are_its_own(tmp_path: Path, first: str) -> None:
    """Whichever came first: a pool as large as configured, and steps on their caller's thread."""
    rows = [(AR, 3), (STOCK, 4), (AR, 6), (STOCK, 7), (AR, 3)]
    if first == STOCK:
        rows = rows[1:]
    settings = [{"protocol": protocol, "threads": threads} for protocol, threads in rows]
    env = {"LD_PRELOAD": str(preloadable(HERE / "count_threads.cc", tmp_path))}
    program = HERE / "programs/thread_settings.py"
    said = run_program(program, {"servers": settings}, 150, env).result()
    assert len(said) == len(rows)
    for (protocol, threads), row in zip(rows, said):
        if protocol == AR:
            assert row["at a time"] == threads, said
            # gRPC's timers start one of their own where none of theirs is free.
            assert row["started by steps"] <= STEPS // 10, said
        else:
            # Stock's first decides for all of them, and each step starts a thread: it can be seen.
            assert row["at a time"] == 4, said
            assert row["started by steps"] >= STEPS, said
