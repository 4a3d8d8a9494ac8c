"""Servers of several configurations in one process: what the threads of each do.

Makes those of `servers` in their order, each of a protocol and with so many threads. Prints for
each how many operations that block it ran at a time, and the threads that its steps started.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

import tensorflow as tf

from common.counted import new_threads
from common.processes import own_address

STEPS = 200
BLOCKING = 16


class AtATime:
    """A function that blocks, and counts how many threads are in it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0
        self.most = 0

    def __call__(self) -> Any:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(0.2)
        with self._lock:
            self._now -= 1
        return tf.float32.as_numpy_dtype(0)


def look_at(target: str) -> dict[str, int]:
    with tf.Graph().as_default(), tf.compat.v1.Session(target) as session:
        at_a_time = AtATime()
        blocking = [
            tf.compat.v1.py_func(at_a_time, [], tf.float32, stateful=True) for _ in range(BLOCKING)
        ]
        session.run(tf.group(*[each.op for each in blocking]))
        fed = tf.compat.v1.placeholder(tf.float32, [])
        step = session.make_callable((fed * 3).op, [fed])
        started = new_threads(STEPS, lambda: step(1.0))
        return {"at a time": at_a_time.most, "started by steps": started}


def main() -> None:
    said = []
    for each in json.loads(sys.argv[1])["servers"]:
        config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=each["threads"])
        spec = {"worker": [own_address()]}
        server = tf.distribute.Server(spec, "worker", 0, protocol=each["protocol"], config=config)
        said.append(look_at(server.target))
    print(json.dumps(said), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
