"""Trains on handwritten digits as one task of a Slurm step, over `grpc+ar`.

Each task is a worker of MultiWorkerMirroredStrategy; digits.sbatch starts them. Each prints one
line of JSON: how many of the held-out digits are read right, and by which path each peer was
reached.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tensorflow.python import ar_grpc

_EPOCHS = 12
_BATCH = 128  # of all workers together
# Ports for the tasks that jobs have on a node: from 10000 to 30000, below those that the kernel
# gives to connections.
_FIRST_PORT, _TASKS_PER_NODE, _JOBS = 10000, 16, 1250


def port_base(job: int) -> int:
    """The first port of a job, so that jobs which share a node do not take each other's."""
    return _FIRST_PORT + job % _JOBS * _TASKS_PER_NODE


class Resolver(tf.distribute.cluster_resolver.SlurmClusterResolver):  # type: ignore[misc]
    """TensorFlow's own, for tasks without a GPU, on nodes of any names."""

    def __init__(self, **settings: Any) -> None:
        # TensorFlow 2.14 divides each node's GPUs among its tasks and fails where there are none:
        # it is told of some, which nobody gets.
        super().__init__(
            gpus_per_node=_TASKS_PER_NODE, gpus_per_task=1, auto_set_gpu=False, **settings
        )

    def num_accelerators(self, *_: Any, **__: Any) -> dict[str, int]:
        return {"GPU": 0}

    def _resolve_own_rank(self) -> int:
        """This task's place in the order that TensorFlow gives them, which is not always Slurm's.

        TensorFlow sorts the nodes by name, so n10 comes before n9, and fills one after another.
        """
        tasks = self._resolve_task_configuration()
        own = os.environ["SLURMD_NODENAME"]
        before = sum(int(count) for node, count in tasks.items() if node < own)
        return before + int(os.environ["SLURM_LOCALID"])


def digits() -> tuple[Any, Any, Any, Any]:
    """(training images, held-out images, training labels, held-out labels)."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        (images / 16).astype(np.float32), labels, test_size=0.2, random_state=20, stratify=labels
    )
    return parts[0], parts[1], parts[2], parts[3]


def train(strategy: Any, images: Any, labels: Any) -> Any:
    """The trained model: two dense layers, whose gradients all workers add up in each step."""
    # In the same order for every worker, each of which takes its share.
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images), seed=1)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    with strategy.scope():
        model = tf.keras.Sequential(
            [tf.keras.layers.Dense(1024, activation="relu"), tf.keras.layers.Dense(10)]
        )
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.Adam(3e-3), loss, metrics=["accuracy"])
    model.fit(data.batch(_BATCH).with_options(options), epochs=_EPOCHS, verbose=0)
    return model


def leave_together(strategy: Any) -> None:
    """Waits until every worker is here: one that has left would fail the others."""
    one = tf.function(lambda: strategy.run(lambda: tf.constant(1)))
    strategy.reduce("SUM", one(), axis=None)


def main() -> None:
    # TensorFlow starts a thread for each core that it sees; the job may have fewer.
    threads = int(os.environ.get("SLURM_CPUS_PER_TASK", "1"))
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(max(threads, 2))

    resolver = Resolver(port_base=port_base(int(os.environ["SLURM_JOB_ID"])), rpc_layer="grpc+ar")
    strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
    images, held_out, labels, held_out_labels = digits()
    model = train(strategy, images, labels)
    read = tf.argmax(model(held_out), axis=1).numpy()

    status = ar_grpc.status()
    said = {
        "worker": resolver.task_id,
        "host": os.environ["SLURMD_NODENAME"],
        "address": resolver.cluster_spec().task_address("worker", resolver.task_id),
        "rpc_layer": resolver.rpc_layer,
        "workers": strategy.num_replicas_in_sync,
        "accuracy": float(np.mean(read == held_out_labels)),
        "paths": status["paths"],
        "stream_bytes_received": status["stream_bytes_received"],
        "rendezvous_bytes": status["rendezvous_bytes"],
    }
    # In one piece: all tasks write into one file.
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
    leave_together(strategy)


if __name__ == "__main__":
    main()
