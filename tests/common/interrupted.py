"""Steps to be interrupted, what runs them meanwhile, and the proof that all works afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from common.limits import LATE, seen
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


class Runner(threading.Thread):
    """Runs a step over and over until it fails."""

    def __init__(self, step: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._step = step
        self.running = threading.Event()
        self.error: Any = None
        self.wrong: list[Any] = []
        self.slowest = 0.0
        self.start()

    def run(self) -> None:
        try:
            while True:
                began = time.monotonic()
                value = self._step()
                self.slowest = max(self.slowest, time.monotonic() - began)
                self.running.set()
                if value != 0.0:
                    self.wrong.append(value)
        except Exception as error:
            self.error = error
        finally:
            self.running.set()

    def outcome(self, seconds: float = LATE) -> Any:
        self.join(seconds)
        assert not self.is_alive(), f"no error within {seconds:.1f} s"
        assert not self.wrong, f"wrong values: {self.wrong[:5]}"
        return self.error

    def outcome_of_a_death(self) -> Any:
        """For which the outcome must be there within the time that `seen` allows."""
        return self.outcome(seen(self.slowest))
