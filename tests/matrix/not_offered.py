"""What a path does not offer: a closed list, and for each entry the proof that it is so."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Callable

import pytest
import tensorflow as tf

from common.ar import eventually
from common.graphs import huge_transfer
from common.idle import percent_of_a_core
from common.interrupted import PROMPT, PS, WORKER, long_transfer, session_on
from common.loops import Loop
from common.pair import session_at
from common.paths import PATHS
from common.processes import Cluster
from common.sessions import lost
from matrix.cases_values import HUGE


@dataclass(frozen=True)
class NotOffered:
    """A cell that a path cannot have.

    `shows` gets a ps and a worker of its own, which may die of it, and fails unless the path
    behaves as the reason says.
    """

    case: str
    path: str
    reason: str
    shows: Callable[[Cluster], None]


def _kills_the_sender(cluster: Cluster) -> None:
    with session_on(cluster, seconds=200) as session:
        samples = huge_transfer(PS, WORKER, HUGE)
        with pytest.raises(tf.errors.UnavailableError) as died:
            session.run(samples)
        assert lost(died.value, PS), str(died.value)
        assert eventually(cluster.dead) == [PS]
        assert "Cannot encode a Tensor that exceeds the 2GB protobuf limit" in cluster[PS].tail()
        # A master waits long for a dead task when its session closes.
        cluster.restart(PS)


def _rank_does_not_come_back(cluster: Cluster, way: tuple[str, str]) -> None:
    """An end of a transfer dies, and what is started in its place cannot join the MPI job. The
    other end, whose message no rank will take or send any more, has nothing to do."""
    # A master that waits for a dead task when its session closes is dead itself then.
    with session_at(cluster.target(WORKER), seconds=10) as session:
        step = long_transfer(*way, mib=64)
        loop = Loop(partial(session.run, step))
        loop.wait_steps(2, PROMPT)
        killed = time.monotonic()
        cluster[PS].kill()
        loop.is_lost(PS, killed)
        with pytest.raises(tf.errors.UnavailableError) as away:
            session.run(step)
        assert lost(away.value, PS), str(away.value)
        cluster.start_outside(PS)
        assert cluster.dead() == [PS]
        assert "this process was not started by an MPI launcher" in cluster[PS].tail()
        assert cluster[WORKER].alive()
        idle = percent_of_a_core(cluster, 5, _IDLE, [WORKER])
        assert idle[WORKER] < _IDLE, idle
        cluster.new_job()
    with session_on(cluster) as session:
        assert session.run(long_transfer(PS, WORKER, mib=64)) == 0.0


_NO_SUCCESSOR = (
    "an MPI starts all ranks of a job at once: calls to a task that has died are Unavailable, what "
    "is started in its place says that it is in no job, and the cluster is started anew"
)
#: Percent of a core.
_IDLE = 1.0
_OVER_MPI = tuple(path.name for path in PATHS if path.mpi)

NOT_OFFERED: tuple[NotOffered, ...] = (
    *(
        NotOffered(case, path, _NO_SUCCESSOR, partial(_rank_does_not_come_back, way=way))
        for path in _OVER_MPI
        for case, way in (("peer killed", (PS, WORKER)), ("peer restarted", (WORKER, PS)))
    ),
    NotOffered(
        "over 2 GiB",
        "grpc",
        "upstream encodes a tensor into one message of at most 2 GiB: a larger one aborts the "
        "process that sends it",
        _kills_the_sender,
    ),
)
