"""Broadcasts a reference variable that the sender changes as soon as it has been told it was sent.

Task 0 runs the steps and prints which of them brought other values than that step's, and how many
threads they started, by the preloaded count; task 1 serves.
"""

from __future__ import annotations

import json
import sys

import tensorflow as tf
from tensorflow.python import ar_grpc

from common.counted import new_threads
from common.strategies import leading_session

LEADER = "/job:worker/replica:0/task:0"


def main() -> None:
    settings = json.loads(sys.argv[1])
    shape = [settings["size"]]
    with tf.Graph().as_default(), leading_session(settings) as session:
        with tf.device(f"{LEADER}/device:CPU:0"):
            # A reference variable is changed in place, whoever reads it.
            variable = tf.compat.v1.get_variable(
                "v", shape, tf.float32, tf.zeros_initializer(), use_resource=False
            )
            group = {"group_size": 2, "group_key": 1, "instance_key": 1, "shape": shape}
            sent = tf.raw_ops.CollectiveBcastSend(input=variable._ref(), **group)
            with tf.control_dependencies([sent]):
                change = tf.compat.v1.assign_add(variable, tf.ones(shape))
        with tf.device("/job:worker/replica:0/task:1/device:CPU:0"):
            got = tf.raw_ops.CollectiveBcastRecv(T=tf.float32, **group)
            seen = tf.stack([tf.reduce_min(got), tf.reduce_max(got)])
        session.run(variable.initializer)
        found: list[list[float]] = []
        started = new_threads(
            settings["steps"] - 1,
            lambda: found.append(session.run([seen, change.op])[0].tolist()),
        )
    wrong = {step: values for step, values in enumerate(found) if values != [step, step]}
    status = ar_grpc.status()
    said = {"offers_open": status["offers_open"], "cleanups": status["cleanups"]["calls_made"]}
    print(json.dumps({"wrong": wrong, "threads": started, **said}), flush=True)


if __name__ == "__main__":
    main()
