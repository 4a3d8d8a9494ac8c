"""What programs that run a strategy of several workers share."""

from __future__ import annotations

from collections.abc import Callable
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


def broadcast_ends(settings: dict[str, Any], value: float) -> Callable[..., list[float]]:
    """Of broadcasts from task 1 to task 0, this task's ends: each task runs its own, in a session
    on its own server. What is returned takes a broadcast's number and the seconds after which this
    end gives up, and returns the least and the greatest of `size` values; `traced` gets its
    trace."""
    index, size = settings["index"], settings["size"]
    here = f"/job:worker/replica:0/task:{index}"
    config = tf.compat.v1.ConfigProto(device_filters=[here])
    config.experimental.collective_group_leader = "/job:worker/replica:0/task:0"
    server = tf.distribute.Server(
        settings["cluster"],
        job_name="worker",
        task_index=index,
        protocol=settings["protocol"],
        config=config,
    )
    # The tasks' steps are one to the collectives, as these are of one key.
    together = tf.compat.v1.RunOptions()
    together.experimental.collective_graph_key = 1

    def end(number: int, seconds: float, traced: Any = None) -> list[float]:
        group = {"group_size": 2, "group_key": 1, "instance_key": number, "shape": [size]}
        group["timeout_seconds"] = seconds
        options = tf.compat.v1.RunOptions()
        options.CopyFrom(together)
        if traced is not None:
            options.trace_level = tf.compat.v1.RunOptions.FULL_TRACE
        with tf.Graph().as_default(), tf.device(f"{here}/device:CPU:0"):
            if index == 0:
                values = tf.raw_ops.CollectiveBcastRecv(T=tf.float32, **group)
            else:
                values = tf.raw_ops.CollectiveBcastSend(input=tf.fill([size], value), **group)
            ends = tf.stack([tf.reduce_min(values), tf.reduce_max(values)])
            with tf.compat.v1.Session(server.target, config=config) as session:
                found: list[float] = session.run(
                    ends, options=options, run_metadata=traced
                ).tolist()
        return found

    return end
