"""What programs that run a strategy of several workers share."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def worker_resolver(settings: dict[str, Any]) -> Any:
    """The resolver of worker `settings["index"]` of `settings["cluster"]`."""
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(settings["cluster"]),
        task_type="worker",
        task_id=settings["index"],
        rpc_layer=settings["protocol"],
    )


def ring_strategy(resolver: Any) -> Any:
    """Workers that reduce around a ring: RecvBuf, not RecvTensor."""
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    return tf.distribute.MultiWorkerMirroredStrategy(resolver, options)


def leading_session(settings: dict[str, Any]) -> Any:
    """A session on worker 0's own server, in the graph of now; the other workers serve for good."""
    config = tf.compat.v1.ConfigProto()
    config.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
    server = tf.distribute.Server(
        settings["cluster"],
        job_name="worker",
        task_index=settings["index"],
        protocol=settings["protocol"],
        config=config,
    )
    if settings["index"] != 0:
        server.join()
    return tf.compat.v1.Session(server.target, config=config)
