"""Measures all-reduces around a ring of workers: MultiWorkerMirroredStrategy.

Every task runs this script, is a worker, and gets the same commands of `artf_cli.bench.allreduce`.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import tensorflow as tf
from task import Task
from timing import burst

_FLOAT = 4
_PERIOD = 1021


def _values(length: int, rank: int) -> Any:
    """Whole numbers that depend on their place and on the worker; sums of them stay exact."""
    return tf.cast(tf.range(length) % _PERIOD + rank, tf.float32)


class AllReduceTask(Task):
    """Holds one function per size, made once and used in every round."""

    def __init__(self) -> None:
        super().__init__()
        self._strategy: Any = None
        self._workers = 0
        self._steps: dict[int, Any] = {}

    def do_serve(
        self,
        cluster: dict[str, list[str]],
        job: str,
        index: int,
        protocol: str,
        channels: int = 0,
        spin: bool = True,
    ) -> dict[str, Any]:
        """Joins the workers, who all must get this command at once, with TensorFlow's settings."""
        self.take_place(cluster, index)
        self._workers = len(cluster[job])
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(cluster), task_type=job, task_id=index, rpc_layer=protocol
        )
        ring = tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING
        )
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver, ring)
        return {"target": ""}

    def do_case(self, size: int) -> None:
        """Makes the all-reduce of a tensor of `size` bytes in every worker."""
        value = _values(size // _FLOAT, self.index)

        def in_replica() -> Any:
            # What a function holds has no device, which all_reduce wants.
            return tf.distribute.get_replica_context().all_reduce("sum", tf.identity(value))

        self._steps[size] = tf.function(partial(self._strategy.run, in_replica))

    def do_check(self, size: int) -> None:
        """Reduces once; raises ValueError unless every element is the sum of all workers'."""
        summed = self._steps[size]()
        expected = tf.add_n([_values(size // _FLOAT, rank) for rank in range(self._workers)])
        wrong = int(tf.math.count_nonzero(tf.not_equal(summed, expected)))
        if wrong:
            raise ValueError(f"{wrong} of {size // _FLOAT} reduced elements are wrong")

    def do_burst(self, size: int, steps: int) -> dict[str, Any]:
        """Times `steps` all-reduces; every worker must do as many."""
        return burst(self._steps[size], time.monotonic(), 0.0, steps)


if __name__ == "__main__":
    AllReduceTask().serve_commands()
