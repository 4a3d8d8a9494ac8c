"""Devices that are no CPUs: what they receive comes in the message, as only they know their memory.

XLA's device of the host's cores stands for them: TensorFlow has no accelerator's facts about it.
"""

from __future__ import annotations

import pytest
import tensorflow as tf

from common.ar import Moved, moved, wait_no_offers
from common.fixtures import ClusterFactory
from common.pair import MIB, PS, WORKER, session_at
from common.sessions import task_device

pytestmark = pytest.mark.timeout(120)

XLA = {"AR_GRPC_FABRICS": "shm", "TF_XLA_FLAGS": "--tf_xla_enable_xla_devices=true"}


@pytest.mark.parametrize("sink", ["CPU", "XLA_CPU"])
@pytest.mark.parametrize("source", ["CPU", "XLA_CPU"])
def test_from_and_to_a_device_that_is_no_cpu(
    new_ar_cluster: ClusterFactory, source: str, sink: str
) -> None:
    cluster = new_ar_cluster(XLA, ps=1, worker=1)
    with session_at(cluster.target()) as session:
        with tf.device(task_device(PS).replace("CPU", source)):
            value = tf.random.uniform([], seed=1)
            sent = tf.fill([MIB], value)
        with tf.device(task_device(WORKER).replace("CPU", sink)):
            least, greatest = tf.reduce_min(sent), tf.reduce_max(sent)
        received = Moved(cluster, WORKER)
        wanted, *ends = session.run([value, least, greatest])
        assert ends == [wanted] * 2
        assert received() == (moved(1, 4 * MIB) if sink == "CPU" else moved())
    wait_no_offers(cluster, PS)
