"""Servers of several clusters in one process, all of whose tasks have the same names.

Serves `jobs` of each of `clusters`. With `steps` it also runs them, in a thread for each cluster,
and prints by cluster what was wrong, and at the end this process's counters. Without, it serves
until it is killed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import ar_grpc

PS, WORKER = "/job:ps/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:0"


def serve(spec: dict[str, list[str]], job: str) -> Any:
    return tf.distribute.Server(tf.train.ClusterSpec(spec), job, 0, protocol="grpc+ar")


class Steps(threading.Thread):
    """Those of one cluster: a variable of the same name in each, and tensors of one's own value."""

    def __init__(self, target: str, mark: int, size: int, steps: int) -> None:
        super().__init__(daemon=True)
        self._target, self._mark, self._size, self._steps = target, mark, size, steps
        self.wrong: list[str] = []
        self.done = 0
        self.start()

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:
            self.wrong.append(f"{type(error).__name__}: {error}")

    def _run(self) -> None:
        config = tf.compat.v1.ConfigProto(operation_timeout_in_ms=60000)
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = -1
        with tf.Graph().as_default(), tf.compat.v1.Session(self._target, config=config) as session:
            fed = tf.compat.v1.placeholder(tf.int64, [])
            with tf.device(PS):
                variable = tf.compat.v1.get_variable(
                    "same", [self._size], tf.int64, tf.compat.v1.zeros_initializer()
                )
                assigned = variable.assign(tf.fill([self._size], fed))
            with tf.device(WORKER):
                here = tf.identity(assigned) * 2
            with tf.device(PS):
                back = tf.identity(here) + fed
            with tf.device(WORKER):
                fetched = [here, back + 0]
            session.run(variable.initializer)
            for step in range(self._steps):
                value = self._mark + step
                got = session.run(fetched, {fed: value})
                for tensor, factor in zip(got, (2, 3)):
                    expected = np.full(self._size, factor * value)
                    if tensor.shape != expected.shape or (tensor != expected).any():
                        self.wrong.append(f"step {step}: {tensor.shape} {np.unique(tensor)[:5]}")
                self.done += 1


def main() -> None:
    settings = json.loads(sys.argv[1])
    servers = {
        (number, job): serve(spec, job)
        for number, spec in enumerate(settings["clusters"])
        for job in settings["jobs"]
    }
    if not settings["steps"]:
        print("READY", flush=True)
        while True:
            time.sleep(1)
    threads = [
        Steps(servers[number, "worker"].target, (number + 1) * 10**6, size, settings["steps"])
        for number, size in enumerate(settings["sizes"])
    ]
    for thread in threads:
        thread.join(90)
    results = [{"done": thread.done, "wrong": thread.wrong[:5]} for thread in threads]
    print(json.dumps({"clusters": results, "status": ar_grpc.status()}), flush=True)


if __name__ == "__main__":
    main()
