"""Collectives over `grpc+ar`: right sums, buffers that are whose they should be, and aborts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from common.ar import ways_outside_arena
from common.broadcasts import run_broadcasts
from common.crowd import crowded_core
from common.preload import preloadable
from common.processes import Program, own_address, wait_together
from common.protocols import AR
from common.repeated import few
from common.unheard_cancel import check_unheard_cancel

pytestmark = pytest.mark.timeout(120)

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
MIB = 2**20
GIB = 2**30
SHM = {"AR_GRPC_FABRICS": "shm"}


def test_ring_all_reduce() -> None:
    """RecvBuf: the sums of 16 MiB are right on both workers, and came the way they should."""
    spec = {"worker": [own_address() for _ in range(2)]}
    settings = {"cluster": spec, "protocol": AR, "size": 4 * MIB, "rounds": 3}
    workers = [
        Program(
            PROGRAMS / "all_reduce.py", {**settings, "index": index}, {"AR_GRPC_FABRICS": "shm"}
        )
        for index in range(2)
    ]
    for result in [outcome.result() for outcome in wait_together(workers, 100)]:
        assert result["wrong"] == [0, 0, 0]
        assert set(result["paths"].values()) == {"shm"}
        # In a ring of two each worker receives as many bytes as the tensor has.
        assert result["rendezvous_bytes"] == 3 * 16 * MIB
        assert result["staged_bytes"] == result["chunk_bytes"] == 0
        assert result["offers_open"] == 0


def broadcasts(
    program: str, seconds: float = 100, env: Mapping[str, str] = SHM, **settings: Any
) -> Any:
    """What the leader of two workers says, over shared memory; the other serves."""
    spec = {"worker": [own_address() for _ in range(2)]}
    shared = {"cluster": spec, "protocol": AR, **settings}
    served, leader = (
        Program(PROGRAMS / program, {**shared, "index": index}, env) for index in (1, 0)
    )
    try:
        result = leader.wait(seconds).result()
    finally:
        served.kill()
    return result


def test_broadcast_of_a_reference_variable(tmp_path: Path) -> None:
    """Changed in place once it was sent, which must not be before the receiver has its bytes."""
    env = {**SHM, "LD_PRELOAD": str(preloadable(HERE / "count_threads.cc", tmp_path))}
    said = broadcasts("broadcast.py", env=env, size=4 * MIB, steps=40)
    # The producer is told by few threads, not by one a buffer. gRPC's may start one of their own.
    assert said.pop("threads") <= 20
    # Each step is cleaned up by a call: a step with collectives may have a former one's id.
    assert said == {"wrong": {}, "offers_open": 0, "cleanups": 40}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "busy",
    [
        pytest.param(0, id="with cores to spare"),
        pytest.param(12, id="on a crowded core", marks=pytest.mark.slow),
    ],
)
def test_a_collective_that_timed_out_is_not_written_to(busy: int) -> None:
    """Its time is up in mid-copy; the tensor that gets its memory keeps its values.

    On a crowded core its calls end long after its step, whose objects they must not use then.
    """
    with crowded_core(busy):
        # Beside a build, TensorFlow alone takes half a minute to start.
        *before, last = broadcasts("late_broadcast.py", 250, size=GIB // 4)
    # Else no attempt ended in the middle of its copy with a tensor in its place.
    assert "later" in last, [*before, last]
    assert "Collective has timed out during execution" in last["ended"]
    assert 0 < last["at once"] < last["pages"]
    assert last["later"] == last["at once"], f"what was freed was written to: {last}"


@pytest.mark.parametrize("fabric", few(["shm", "tcp"], "tcp"))
def test_a_cancel_that_comes_before_its_receive(fabric: str, tmp_path: Path) -> None:
    """Over TCP the bytes come with the response, which TensorFlow itself would copy."""
    env = {"AR_GRPC_FABRICS": fabric}
    if fabric == "tcp":
        # The arena would have to give a freed place to the next tensor of its size, as malloc does.
        env["AR_GRPC_ARENA"] = "0"
    check_unheard_cancel(AR, tmp_path, MIB, env)


@pytest.mark.parametrize("fabric", few(["shm", "tcp"], "shm"))
def test_a_trace_says_how_many_bytes_a_collective_received(fabric: str, tmp_path: Path) -> None:
    """Whichever way they came."""
    start = partial(Program, env={"AR_GRPC_FABRICS": fabric})
    settings = {"size": MIB, "steps": 2, "traced": True}
    receiver, sender = run_broadcasts(tmp_path, start, start, (AR, AR), settings)
    assert receiver.result() == [[7.0, 7.0, 4 * MIB]] * 2
    assert sender.result() == [[7.0, 7.0]] * 2


@pytest.mark.parametrize(
    "staged",
    [pytest.param(True, id="staged"), pytest.param(False, id="lent", marks=pytest.mark.slow)],
)
def test_aborted_while_its_receiver_stands_still(staged: bool, tmp_path: Path) -> None:
    """What was staged is the sender's own again at once; what is lent may be being read."""
    # A third of it is the time that the receiver's question has.
    size, limit = MIB, 9.0
    # TensorFlow's own pool has its tensors outside of what peers may read.
    env = {**SHM, "TF_CPU_ALLOCATOR_USE_BFC": "1"} if staged else SHM
    said = broadcasts(
        "abandoned_broadcast.py", env=env, size=size, limit=limit, pid=str(tmp_path / "pid")
    )
    status = said.pop("status")
    assert said.pop("staged") in (
        [sent["staged_bytes"] for _, sent in ways_outside_arena(status, 4 * size)]
        if staged
        else [0]
    )
    # What the stream carries was not offered.
    assert status["offers_open"] == (1 if status["staged_bytes"] or not staged else 0)
    assert said == {"ended": "DeadlineExceededError", "ended meanwhile": staged}
