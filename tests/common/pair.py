"""Steps of a ps and a worker of `grpc+ar`, and the proof that both work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import tensorflow as tf

from common.ar import Moved, moved, path_of, wait_no_offers
from common.processes import Cluster
from common.sessions import config, task_device

PS, WORKER = "ps:0", "worker:0"
MIB = 2**20
#: What summed() gives.
SUM = sum(range(100000))


@contextmanager
def session_at(target: str, seconds: float = 30) -> Iterator[Any]:
    """A session, and for the test a graph to build in."""
    with tf.Graph().as_default():
        session = tf.compat.v1.Session(target, config=config(seconds))
        try:
            yield session
        finally:
            with suppress(tf.errors.OpError):  # the master itself may be the one that was killed
                session.close()


def summed(target: str, seconds: float = 30) -> int:
    """A step of a new session that returns SUM."""
    with session_at(target, seconds) as session:
        fed = tf.compat.v1.placeholder(tf.int64, [])
        return int(session.run(tf.reduce_sum(tf.range(fed)), {fed: 100000}))


def large_step(way: tuple[str, str], mib: int, parts: int = 1) -> Any:
    """`parts` tensors of `mib` MiB go over `way`; 0.0 if each is one value throughout."""
    spreads = []
    for part in range(parts):
        with tf.device(task_device(way[0])):
            value = tf.random.uniform([], dtype=tf.float64, seed=part)
            sent = tf.fill([mib * MIB // 8], value)
        with tf.device(task_device(way[1])):
            spreads.append(tf.reduce_max(sent) - tf.reduce_min(sent))
    with tf.device(task_device(way[1])):
        return tf.add_n(spreads)


def assert_works(cluster: Cluster, fabric: str | None) -> None:
    """A new session brings tensors both ways, over `fabric`; None: over a stock connection."""
    for way in ((PS, WORKER), (WORKER, PS)):
        with session_at(cluster.target(way[1])) as session:
            step = large_step(way, 2)
            received = Moved(cluster, way[1])
            assert session.run(step) == 0.0
            assert received() == (moved(1, 2 * MIB) if fabric == "shm" else moved())
        if fabric:
            assert path_of(cluster, way[1], way[0]) == fabric
    wait_no_offers(cluster, PS, WORKER)
