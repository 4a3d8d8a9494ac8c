"""A client of `grpc+ar` that runs a step over and over until it is connected over shared memory.

Prints the path and the seconds that this took, and whatever value was wrong; an error ends it.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import tensorflow as tf
from tensorflow.python import ar_grpc

SUM = sum(range(1000))


def main() -> None:
    settings = json.loads(sys.argv[1])
    address = "ipv4:" + settings["target"].split("//")[1]
    config = tf.compat.v1.ConfigProto(operation_timeout_in_ms=60000)
    wrong: list[int] = []
    with tf.Graph().as_default():
        fed = tf.compat.v1.placeholder(tf.int64, [])
        total = tf.reduce_sum(tf.range(fed))
        began = time.monotonic()
        with tf.compat.v1.Session(settings["target"], config=config) as session:

            def step() -> Any:
                value = session.run(total, {fed: 1000}).item()
                if value != SUM:
                    wrong.append(value)
                return ar_grpc.status()["paths"].get(address)

            path = step()
            while path != "shm" and time.monotonic() - began < settings["seconds"]:
                time.sleep(0.05)
                path = step()
            seconds = time.monotonic() - began
            for _ in range(settings["more"]):
                path = step()
    print(json.dumps({"path": path, "seconds": seconds, "wrong": wrong}), flush=True)


if __name__ == "__main__":
    main()
