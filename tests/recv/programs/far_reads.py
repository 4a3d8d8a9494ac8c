"""A worker that reads variables of a far parameter server, some alone and some side by side.

Prints, as JSON, how far it takes the server to be, and of each of the cases what a step read by
rendezvous and how long it took, in ms, of `steps` of them.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import ar_grpc


def values(count: int, size: int) -> list[Any]:
    return [np.arange(size // 4, dtype=np.int32) + index for index in range(count)]


def measured(target: str, count: int, size: int, steps: int) -> dict[str, Any]:
    """Of steps that each read `count` variables of `size` bytes, whose values must be right."""
    whole = sum(int(value.sum(dtype=np.int64)) for value in values(count, size))
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            kept = [tf.Variable(value, use_resource=True) for value in values(count, size)]
        with tf.device("/job:worker/task:0"):
            sums = [tf.reduce_sum(tf.cast(one.read_value(), tf.int64)) for one in kept]
            got = tf.add_n(sums)
        with tf.compat.v1.Session(target) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            assert session.run(got) == whole
            before = ar_grpc.status()["rendezvous"]
            took = []
            for _ in range(steps):
                began = time.perf_counter()
                assert session.run(got) == whole
                took.append(1000 * (time.perf_counter() - began))
            read = ar_grpc.status()["rendezvous"] - before
    return {"read": read / steps, "ms": statistics.median(took), "all_ms": took}


def main() -> None:
    settings = json.loads(sys.argv[1])
    server = tf.distribute.Server(settings["cluster"], job_name="worker", protocol="grpc+ar")
    cases = {
        f"{count}x{size}": measured(server.target, count, size, settings["steps"])
        for count, size in settings["cases"]
    }
    status = ar_grpc.status()
    said = {"cases": cases, "far_us": status.get("far_us"), "paths": status["paths"]}
    print(json.dumps(said), flush=True)


main()
