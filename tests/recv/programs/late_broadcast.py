"""A broadcast whose time is up in the middle of its copy; then its memory belongs to others.

Task 0 receives, runs the steps, and prints how the last one ended and what of its values lay in the
memory of a tensor that was made right after it: at once, and when the copy would have long been
over. Only where some do was that tensor given the broadcast's memory. Task 1 sends.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from common.strategies import leading_session

RECEIVER, SENDER = (f"/job:worker/replica:0/task:{task}" for task in range(2))
LONG = 60.0
#: Parts of a whole broadcast after which the time is up, one attempt each.
PARTS = (0.3, 0.2, 0.4, 0.1, 0.5, 0.05) * 4
#: Every so many values one is looked at: one of each page.
STRIDE = 1024


def main() -> None:
    settings = json.loads(sys.argv[1])
    size = settings["size"]
    with tf.Graph().as_default(), leading_session(settings) as session:
        with tf.device(f"{SENDER}/device:CPU:0"):
            value = tf.compat.v1.placeholder(tf.float32, [])
            sent_values = tf.compat.v1.get_variable(
                "sent", [size], tf.float32, tf.zeros_initializer(), use_resource=False
            )
            change = tf.compat.v1.assign(sent_values, tf.fill([size], value)).op
        instances = iter(range(1, 99))

        def broadcast(limit: float) -> tf.Operation:
            """Of the variable; the receiving end gives up after `limit` seconds."""
            key = next(instances)
            group = {"group_size": 2, "group_key": 1, "instance_key": key, "shape": [size]}
            with tf.device(f"{SENDER}/device:CPU:0"):
                sent = tf.raw_ops.CollectiveBcastSend(input=sent_values._ref(), **group)
            with tf.device(f"{RECEIVER}/device:CPU:0"):
                got = tf.raw_ops.CollectiveBcastRecv(T=tf.float32, timeout_seconds=limit, **group)
                return tf.group(sent.op, got.op)

        def run(step: tf.Operation) -> float:
            """Seconds that it took."""
            begin = time.monotonic()
            session.run(step)
            return time.monotonic() - begin

        def memory_of_a_new_tensor() -> Any:
            """A page's first values each; the tensor is as long as what was freed."""
            with context.eager_mode():
                tensor = tf.raw_ops.Empty(shape=[size], dtype=tf.float32, init=False)
            return tensor._numpy()[::STRIDE]

        memory_of_a_new_tensor()  # what that takes the first time must not be in between below
        session.run(sent_values.initializer)
        usual_step = broadcast(LONG)
        usual = min(run(usual_step) for _ in range(4))
        attempts = []
        for number, part in enumerate(PARTS, start=1):
            # No other broadcast brought this value.
            session.run(change, {value: number})
            ended = "in time"
            try:
                run(broadcast(usual * part))
            except tf.errors.DeadlineExceededError as error:
                ended = error.message
            memory = memory_of_a_new_tensor()
            at_once = int(np.count_nonzero(memory == number))
            attempts.append({"ended": ended, "pages": len(memory), "at once": at_once})
            if ended != "in time" and 0 < at_once < len(memory):
                time.sleep(4 * usual + 0.5)
                attempts[-1]["later"] = int(np.count_nonzero(memory == number))
                break
            del memory
    print(json.dumps(attempts), flush=True)


if __name__ == "__main__":
    main()
