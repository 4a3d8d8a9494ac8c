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
