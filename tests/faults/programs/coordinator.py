"""A coordinator that loses a server halfway: it kills the given pid itself, mid-transfer.

Prints the results of all functions, or the error that join() raised.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import tensorflow as tf

FUNCTIONS = 60
SIZE = 2**20


def main() -> None:
    settings = json.loads(sys.argv[1])
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(settings["cluster"]),
        task_type="chief",
        task_id=0,
        rpc_layer=settings["protocol"],
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        variable = tf.Variable(tf.ones([SIZE], tf.float64))

    @tf.function
    def step(number: Any) -> Any:
        """Several transfers of 8 MiB, so that a kill falls into one."""
        total = tf.constant(0.0, tf.float64)
        for _ in tf.range(5):
            total += tf.reduce_sum(variable.read_value() * number)
        return total

    def schedule(first: int, last: int) -> list[Any]:
        numbers = [tf.constant(number, tf.float64) for number in range(first, last)]
        return [coordinator.schedule(step, (number,)) for number in numbers]

    results = schedule(0, 10)
    coordinator.join()
    results += schedule(10, FUNCTIONS)
    killed = time.monotonic()
    if settings["kill"]:
        time.sleep(0.05)
        os.kill(settings["kill"], signal.SIGKILL)
    try:
        coordinator.join()
    except tf.errors.OpError as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        answer: Any = {"error": kinds, "text": str(error), "seconds": time.monotonic() - killed}
    else:
        answer = [result.fetch() / (5 * SIZE) for result in results]
    print(json.dumps(answer), flush=True)
    if settings["kill"]:
        os._exit(0)  # upstream's coordinator waits for ever, at exit, for a server that was lost


if __name__ == "__main__":
    main()
