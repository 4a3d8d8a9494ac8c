"""What devices that are no CPUs receive comes in the message, as only they know their memory."""

from __future__ import annotations

import pytest

from common.ar import Moved, moved, wait_no_offers
from common.fixtures import ClusterFactory
from common.graphs import XLA, between_devices
from common.pair import MIB, PS, WORKER, session_at
from common.repeated import few
from common.sessions import task_device

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("sink", few(["CPU", "XLA_CPU"], "XLA_CPU"))
@pytest.mark.parametrize("source", ["CPU", "XLA_CPU"])
def test_from_and_to_a_device_that_is_no_cpu(
    new_ar_cluster: ClusterFactory, source: str, sink: str
) -> None:
    cluster = new_ar_cluster({"AR_GRPC_FABRICS": "shm", **XLA}, ps=1, worker=1)
    with session_at(cluster.target()) as session:
        there = task_device(PS).replace("CPU", source)
        values = between_devices(there, task_device(WORKER).replace("CPU", sink), MIB)
        received = Moved(cluster, WORKER)
        wanted, *ends = session.run(values)
        assert ends == [wanted] * 2
        assert received() == (moved(1, 4 * MIB) if sink == "CPU" else moved())
    wait_no_offers(cluster, PS)
