"""Sessions whose master is in their own process: stock's outcomes, without a thread a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.preload import preloadable
from common.processes import own_address, run_program
from common.protocols import AR, STOCK

_PROGRAM = Path(__file__).parent / "programs/in_process.py"
_STEPS = 400
_THREADS = ("threads", "threads with a limit", "threads of a callable")

pytestmark = pytest.mark.timeout(180)


def test_sessions_of_an_in_process_master(protocol: str, tmp_path: Path) -> None:
    cluster = {"ps": [own_address()], "worker": [own_address()]}
    settings = {"cluster": cluster, "protocol": protocol, "steps": _STEPS}
    counting = preloadable(Path(__file__).with_name("count_threads.cc"), tmp_path)
    env = {"LD_PRELOAD": str(counting)}
    said = run_program(_PROGRAM, settings, 150, env).result()
    threads = {name: said.pop(name) for name in _THREADS}
    # Once the limit has passed, the step is cancelled and its end awaited: some 2 ms.
    assert 0 <= said.pop("late by") < 1
    assert said == {
        "scheme": AR if protocol == AR else STOCK,
        "other schemes": ["None", "b''", "b'grpc://127.0.0.1:1'", "b'x'"],
        "by rpc": "7.0",
        "run": "7.0",
        "run with a limit": "7.0",
        "callable": "7.0",
        "late": "DeadlineExceededError",
        "after the late one": "7.0",
        "waited for another step": "7.0",
        "callable before the reset": "7.0",
        "closed meanwhile": "CancelledError",
        "reset meanwhile": "AbortedError: is not found",
        "callable of a reset session": "AbortedError: is not found",
    }
    if protocol == AR:
        # gRPC's timers start one of their own where none of theirs is free.
        assert max(threads.values()) <= _STEPS // 10, threads
    else:
        # That stock starts one a step is what proves that threads are counted.
        assert min(threads.values()) >= _STEPS, threads
