"""What the tests of grpc+verbs and grpc+mpi share: mixed clusters, and servers at rest."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import tensorflow as tf

from common.broadcasts import Start, run_broadcasts
from common.idle import percent_of_a_core
from common.pair import MIB, PS, WORKER, large_step, session_at
from common.processes import Cluster, Program

#: What happens to a tensor of a mixed cluster.
BY_CHANNEL, IN_RESPONSE, REFUSED = "by the channel", "in the response", "refused"


def mixed(protocol: str) -> dict[tuple[str, str], str]:
    """Sender, receiver → what happens to a tensor, where one of them or both speak `protocol`.

    A receiver of it asks for its own way and takes nothing else; a sender answers who does not.
    """
    return {
        ("grpc", protocol): REFUSED,
        ("grpc+ar", protocol): REFUSED,
        (protocol, "grpc"): IN_RESPONSE,
        (protocol, "grpc+ar"): IN_RESPONSE,
        (protocol, protocol): BY_CHANNEL,
    }


def check_mixed(
    cluster: Cluster, outcome: str, counters: tuple[str, ...], refusal: str, seconds: float = 30
) -> None:
    """A tensor of 2 MiB goes as `outcome` says; `refusal` is in the error of one that is refused.

    `counters` of the receiving worker each show the bytes that the channel brings, and no others.
    """
    with session_at(cluster.target(), seconds) as session:
        step = large_step((PS, WORKER), 2)
        before = cluster[WORKER].counters()
        if outcome == REFUSED:
            with pytest.raises(tf.errors.FailedPreconditionError) as refused:
                session.run(step)
            assert refusal in str(refused.value)
            return
        assert session.run(step) == 0.0
        after = cluster[WORKER].counters()
    moved = {name: after.get(name, 0) - before.get(name, 0) for name in counters}
    assert moved == dict.fromkeys(counters, 2 * MIB if outcome == BY_CHANNEL else 0)


def check_broadcast_to_grpc(
    protocol: str, folder: Path, send: Start = Program, seconds: float = 60
) -> None:
    """A server of `protocol` sends to one of `grpc`: right values, and its log says why over gRPC.

    `send` starts the sender.
    """
    settings = {"size": MIB, "steps": 4}
    ends = run_broadcasts(folder, Program, send, ("grpc", protocol), settings, seconds)
    for end in ends:
        assert end.result() == [[7.0, 7.0]] * 4
    said = [line for line in ends[1].stderr.splitlines() if "goes over gRPC" in line]
    receives = "/job:worker/replica:0/task:0/device:CPU:0"
    (only,) = said
    assert only.endswith(
        f"{protocol}: a collective goes over gRPC: the server of {receives}, which receives, does "
        f"not speak {protocol}"
    )


def cpu_percent_at_rest(
    cluster: Cluster, seconds: float, limit: float, patience: float = 30, settle: float = 2
) -> dict[str, float]:
    """percent_of_a_core(), `settle` seconds after tensors both ways."""
    for way in ((PS, WORKER), (WORKER, PS)):
        with session_at(cluster.target(way[1]), patience) as session:
            assert session.run(large_step(way, 8)) == 0.0
    time.sleep(settle)
    return percent_of_a_core(cluster, seconds, limit)
