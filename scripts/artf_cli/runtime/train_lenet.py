"""Trains LeNet on scikit-learn's handwritten digits: one parameter server, several workers.

Between-graph replication: the variables lie on the parameter server, every worker computes
gradients of its own batches and applies them without waiting for the others (asynchronous Adam).
`artf_cli.quickstart` drives it.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from task import Task, run_step, session_config

_SPLIT_SEED = 20
_WEIGHT_SEED = 1
_HELD_OUT = 0.2
_BATCH = 64
_LEARNING_RATE = 1e-3
_REPORT_EVERY_S = 0.25


def _digits() -> tuple[Any, Any, Any, Any]:
    """(training images, held-out images, training labels, held-out labels), split by a seed."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32).reshape(-1, 8, 8, 1)
    parts = train_test_split(
        images,
        labels.astype(np.int32),
        test_size=_HELD_OUT,
        random_state=_SPLIT_SEED,
        stratify=labels,
    )
    return parts[0], parts[1], parts[2], parts[3]


def _weights(name: str, shape: list[int]) -> tuple[Any, Any]:
    kernel = tf.compat.v1.get_variable(
        f"{name}/kernel",
        shape,
        initializer=tf.compat.v1.glorot_uniform_initializer(seed=_WEIGHT_SEED),
        use_resource=True,
    )
    bias = tf.compat.v1.get_variable(
        f"{name}/bias",
        shape[-1:],
        initializer=tf.compat.v1.zeros_initializer(),
        use_resource=True,
    )
    return kernel, bias


def _convolve(x: Any, name: str, width: int, inputs: int, outputs: int) -> Any:
    kernel, bias = _weights(name, [width, width, inputs, outputs])
    x = tf.nn.relu(tf.nn.conv2d(x, kernel, strides=1, padding="SAME") + bias)
    return tf.nn.max_pool2d(x, ksize=2, strides=2, padding="VALID")


def _lenet(images: Any) -> Any:
    """The logits: two convolutions with pooling, then two dense layers (as in Caffe's LeNet)."""
    x = _convolve(images, "conv1", 5, 1, 20)
    x = _convolve(x, "conv2", 5, 20, 50)
    x = tf.reshape(x, [-1, 2 * 2 * 50])
    kernel, bias = _weights("dense1", [200, 500])
    x = tf.nn.relu(x @ kernel + bias)
    kernel, bias = _weights("dense2", [500, 10])
    return x @ kernel + bias


class LeNetTask(Task):
    """The parameter server serves; workers build, train and evaluate, the first initialises."""

    def __init__(self) -> None:
        super().__init__()
        self._session: Any = None

    def do_build(self, workers: int) -> dict[str, Any]:
        """Builds this worker's graph and opens its session; returns the parameters' bytes."""
        train_x, self._test_x, train_y, self._test_y = _digits()
        self._train_x, self._train_y = (
            train_x[self.index :: workers],
            train_y[self.index :: workers],
        )
        self._random = np.random.default_rng(self.index)
        self._order = np.empty(0, np.int64)
        graph = tf.Graph()
        with graph.as_default():
            placed = tf.compat.v1.train.replica_device_setter(
                ps_tasks=1, worker_device=f"/job:worker/task:{self.index}"
            )
            with tf.compat.v1.device(placed):
                self._images = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 1])
                self._labels = tf.compat.v1.placeholder(tf.int32, [None])
                logits = _lenet(self._images)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(self._labels, logits)
                self._loss = tf.reduce_mean(losses)
                right = tf.equal(tf.argmax(logits, axis=1, output_type=tf.int32), self._labels)
                self._accuracy = tf.reduce_mean(tf.cast(right, tf.float32))
                parameters = tf.compat.v1.trainable_variables()
                optimizer = tf.compat.v1.train.AdamOptimizer(_LEARNING_RATE)
                self._update = self._minimise(optimizer)
                self._initialise = tf.compat.v1.global_variables_initializer()
        self._session = tf.compat.v1.Session(
            self.server.target, graph=graph, config=session_config(self.index)
        )
        sizes = (v.shape.num_elements() * v.dtype.size for v in parameters)
        return {"parameter_bytes": sum(sizes)}

    def _minimise(self, optimizer: Any) -> Any:
        """The operation that takes one step."""
        return optimizer.minimize(self._loss)

    def do_initialise(self) -> None:
        """Gives the variables on the parameter server their first values."""
        run_step(lambda: self._session.run(self._initialise))

    def _batch(self) -> dict[Any, Any]:
        """The next training images of this worker's share, shuffled anew every epoch."""
        if len(self._order) < _BATCH:
            self._order = self._random.permutation(len(self._train_x))
        picked, self._order = self._order[:_BATCH], self._order[_BATCH:]
        return {self._images: self._train_x[picked], self._labels: self._train_y[picked]}

    def do_train(self, steps: int) -> dict[str, Any]:
        """Trains `steps` batches; returns when it began and ended (CLOCK_MONOTONIC, seconds).

        Also how many steps were run again, whose time is then not that of so many steps.
        """
        tries = 0

        def step_once(batch: dict[Any, Any]) -> Any:
            nonlocal tries
            tries += 1
            return self._session.run([self._loss, self._update], batch)

        begin = reported = time.monotonic()
        for step in range(1, steps + 1):
            loss, _ = run_step(partial(step_once, self._batch()))
            now = time.monotonic()
            if now - reported >= _REPORT_EVERY_S or step == steps:
                reported = now
                self.emit("progress", step=step, loss=float(loss))
        return {"begin": begin, "end": time.monotonic(), "repeated": tries - steps}

    def do_evaluate(self) -> dict[str, Any]:
        """The share of the held-out digits that the model reads right."""
        feed = {self._images: self._test_x, self._labels: self._test_y}
        return {"accuracy": float(run_step(lambda: self._session.run(self._accuracy, feed)))}


if __name__ == "__main__":
    LeNetTask().serve_commands()
