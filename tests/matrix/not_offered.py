"""What a path does not offer: a closed list, and for each entry the proof that it is so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

import pytest
import tensorflow as tf

from common.ar import eventually
from common.graphs import huge_transfer
from common.interrupted import PS, WORKER, session_on
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


NOT_OFFERED: tuple[NotOffered, ...] = (
    NotOffered(
        "over 2 GiB",
        "grpc",
        "upstream encodes a tensor into one message of at most 2 GiB: a larger one aborts the "
        "process that sends it",
        _kills_the_sender,
    ),
)
