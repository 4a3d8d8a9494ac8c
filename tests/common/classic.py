"""What the tests of grpc+verbs and grpc+mpi share: mixed clusters, and servers at rest."""

from __future__ import annotations

import time

import psutil
import pytest
import tensorflow as tf

from common.pair import MIB, PS, WORKER, large_step, session_at
from common.processes import Cluster

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


def cpu_percent_at_rest(
    cluster: Cluster, seconds: float, limit: float, patience: float = 30, settle: float = 2
) -> dict[str, float]:
    """What each task takes of a core over so long a time, `settle` seconds after tensors both
    ways: the least of up to three such times, until all take less than `limit`.

    Whoever burns a core does so in each of them. Others' load adds to one: a virtual host counts
    for a process also the time in which its machine does something else.
    """
    for way in ((PS, WORKER), (WORKER, PS)):
        with session_at(cluster.target(way[1]), patience) as session:
            assert session.run(large_step(way, 8)) == 0.0
    time.sleep(settle)
    tasks = {task: psutil.Process(cluster[task].pid) for task in cluster.tasks}

    def used() -> dict[str, float]:
        times = {task: process.cpu_times() for task, process in tasks.items()}
        return {task: each.user + each.system for task, each in times.items()}

    least = dict.fromkeys(tasks, 100.0)
    for _ in range(3):
        before, began = used(), time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        for task, now in used().items():
            least[task] = min(least[task], 100 * (now - before[task]) / took)
        print(least)
        if max(least.values()) < limit:
            break
    return least
