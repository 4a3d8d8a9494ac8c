"""A broadcast whose time is up in the middle of its copy; then its memory belongs to others.

Task 0 receives, runs the steps, and prints how the last one ended and whether a tensor made right
after it kept its values; task 1 sends.
"""

from __future__ import annotations

import json
import sys
import time

import tensorflow as tf

from common.strategies import leading_session

RECEIVER, SENDER = (f"/job:worker/replica:0/task:{task}" for task in range(2))
LONG = 60.0


def main() -> None:
    settings = json.loads(sys.argv[1])
    size = settings["size"]
    tf.fill([1], 7.0)  # what that takes the first time must not be in between below
    with tf.Graph().as_default(), leading_session(settings) as session:
        with tf.device(f"{SENDER}/device:CPU:0"):
            ones = tf.compat.v1.get_variable(
                "ones", [size], tf.float32, tf.ones_initializer(), use_resource=False
            )
        instances = iter(range(1, 99))

        def broadcast(limit: float) -> tf.Operation:
            """Of `ones`; the receiving end gives up after `limit` seconds."""
            key = next(instances)
            group = {"group_size": 2, "group_key": 1, "instance_key": key, "shape": [size]}
            with tf.device(f"{SENDER}/device:CPU:0"):
                sent = tf.raw_ops.CollectiveBcastSend(input=ones._ref(), **group)
            with tf.device(f"{RECEIVER}/device:CPU:0"):
                got = tf.raw_ops.CollectiveBcastRecv(T=tf.float32, timeout_seconds=limit, **group)
                return tf.group(sent.op, got.op)

        def run(step: tf.Operation) -> float:
            """Seconds that it took."""
            begin = time.monotonic()
            session.run(step)
            return time.monotonic() - begin

        session.run(ones.initializer)
        usual_step = broadcast(LONG)
        usual = min(run(usual_step) for _ in range(4))
        ended = "in time"
        for part in (0.1, 0.05, 0.02):
            try:
                run(broadcast(usual * part))
            except tf.errors.DeadlineExceededError as error:
                ended = error.message
                break
    # As long as what was freed, so the arena gives it the same place.
    after = tf.fill([size], 7.0)
    time.sleep(4 * usual + 0.5)
    changed = int(tf.math.count_nonzero(after != 7.0))
    print(json.dumps({"ended": ended, "changed": changed}), flush=True)


if __name__ == "__main__":
    main()
