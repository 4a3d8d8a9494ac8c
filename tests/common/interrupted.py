"""Steps to be interrupted, what runs them meanwhile, and the proof that all works afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from common.loops import Loop
from common.processes import Cluster
from common.sessions import On, check, config, task_device

PS, WORKER, OTHER = "ps:0", "worker:0", "worker:1"
PROMPT = 30.0  # seconds within which a step must run, and a lost master or ps be told


def assert_works(cluster: Cluster) -> None:
    """New sessions get right values, small and large, over every pair of processes."""

    def build(on: On) -> tuple[dict[str, Any], dict[Any, Any]]:
        fetches, feeds = {}, {}
        for size in (1, 65537, 2**20):
            with on(PS):
                fed = tf.compat.v1.placeholder(tf.int32, [size])
                value = fed + 1
            for task in (WORKER, OTHER, PS):
                with on(task):
                    value = value * 3
            with on(WORKER):
                fetches[str(size)] = value + 1
            feeds[fed] = np.arange(size)
        return fetches, feeds

    path = [(PS, WORKER), (WORKER, OTHER), (OTHER, PS), (PS, WORKER)]
    check(cluster, build, path, tensors=3)


class Signal:
    """What operations of one task give, and others wait for."""

    def __init__(self, task: str, name: str) -> None:
        self._device = task_device(task)
        with tf.device(self._device):
            self._queue = tf.queue.FIFOQueue(1, [tf.int32], [[]], shared_name=name)
            self.waited = self._queue.dequeue()
        self.given = self.given_after()

    def given_after(self, *operations: Any) -> Any:
        with tf.device(self._device), tf.control_dependencies(operations):
            return self._queue.enqueue([1])


@contextmanager
def session_on(cluster: Cluster, seconds: float = 60, master: str = WORKER) -> Iterator[Any]:
    """A session, and for the test a graph to build in."""
    with tf.Graph().as_default():
        session = tf.compat.v1.Session(cluster.target(master), config=config(seconds))
        try:
            yield session
        finally:
            session.close()


def blocked_step() -> Any:
    """A tensor that worker 0 waits for, and that the ps never sends."""
    with tf.device(task_device(PS)):
        never = tf.queue.FIFOQueue(1, [tf.float32], [[]], shared_name="never").dequeue()
    with tf.device(task_device(WORKER)):
        return never + 1.0


def blocked(session: Any) -> Loop:
    """What runs blocked_step(), once worker 0 has begun with it."""
    begun = Signal(WORKER, "the step has begun")
    loop = Loop(partial(session.run, [blocked_step(), begun.given]))
    session.run(begun.waited)
    return loop


def endless_transfer(source: str, sink: str, mib: int) -> Any:
    """One step in which a float64 tensor of `mib` MiB goes from source to sink again and again,
    until one has come with a wrong end."""

    def body(number: Any, _: Any) -> tuple[Any, Any]:
        with tf.device(task_device(source)):
            sent = tf.fill([mib * 2**17], tf.cast(number, tf.float64))
        with tf.device(task_device(sink)):
            return number + 1, sent[0] - sent[-1]

    with tf.device(task_device(sink)):
        begin = (tf.constant(0, tf.int64), tf.constant(0.0, tf.float64))
        return tf.while_loop(
            lambda _, last: tf.equal(last, 0.0), body, begin, parallel_iterations=1
        )[1]


def long_transfer(source: str, sink: str, mib: int = 256) -> Any:
    """One step in which `mib` MiB go from source to sink, as large and middling tensors."""
    sums = []
    for i, words in enumerate([mib * 2**16] + [2**16] * mib):  # a half each, as float64
        with tf.device(task_device(source)):
            sent = tf.fill([words], tf.random.uniform([], dtype=tf.float64, seed=i))
        with tf.device(task_device(sink)):
            sums.append(sent[0] - sent[-1])
    with tf.device(task_device(sink)):
        return tf.add_n(sums)
