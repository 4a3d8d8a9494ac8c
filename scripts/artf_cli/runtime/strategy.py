"""A task of a cluster whose worker is driven by a coordinator: ParameterServerStrategy.

The task `chief:0` is the coordinator, a process of its own; the others only serve.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from task import Task


class StrategyTask(Task):
    """Subclasses schedule functions on `coordinator`, with variables made under `strategy`."""

    def __init__(self) -> None:
        super().__init__()
        self.strategy: Any = None
        self.coordinator: Any = None
        self.workers = 0

    def do_serve(
        self,
        cluster: dict[str, list[str]],
        job: str,
        index: int,
        protocol: str,
        channels: int = 0,
        spin: bool = True,
    ) -> dict[str, Any]:
        """Starts this task's server; the chief connects to the others, which must serve by then."""
        if job != "chief":
            return super().do_serve(cluster, job, index, protocol, channels, spin)
        self.take_place(cluster, index)
        self.workers = len(cluster["worker"])
        # As in a session's step: what is measured is what was written.
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster), task_type=job, task_id=index, rpc_layer=protocol
        )
        self.strategy = tf.distribute.ParameterServerStrategy(resolver)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        # A worker connects to the parameter server when it first reads from it.
        self.wave(tf.function(self.make("connection", lambda: tf.zeros([])).read_value))
        return {"target": ""}

    def make(self, name: str, initial: Callable[[], Any]) -> Any:
        """A variable on the parameter server."""
        with self.strategy.scope():
            return tf.Variable(initial, trainable=False, name=name)

    def wave(self, function: Any) -> None:
        """Schedules `function` once for each worker and waits until all are done."""
        for _ in range(self.workers):
            self.coordinator.schedule(function)
        self.coordinator.join()

    def fetch(self, function: Any, *arguments: Any) -> Any:
        """What `function` returns when some worker runs it."""
        result = self.coordinator.schedule(function, arguments)
        self.coordinator.join()
        return result.fetch()
