"""A broadcast that is aborted while its receiver stands still.

Task 0 sends and runs the step; it prints its seconds, how it ended, and this process's counters
then. Task 1 receives, once task 0 has stopped it: from then on it asks for nothing and releases
nothing. Its question waits at task 0 by then, which has nothing to send until it stands still.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

from common.counters import own_counters
from common.processes import stand_still
from common.strategies import leading_session

SENDER, RECEIVER = (f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2))


def outcome(session: Any, step: Any, limit: float, said: dict[str, Any]) -> None:
    options = tf.compat.v1.RunOptions(timeout_in_ms=int(1000 * limit))
    try:
        session.run(step, options=options)
        said["ended"] = "well"
    except tf.errors.OpError as error:
        said["ended"] = type(error).__name__


def main() -> None:
    settings = json.loads(sys.argv[1])
    if settings["index"] == 1:
        Path(settings["pid"]).write_text(str(os.getpid()))
    size, limit = settings["size"], settings["limit"]
    with tf.Graph().as_default(), leading_session(settings) as session:
        group = {"group_size": 2, "group_key": 1, "shape": [size]}
        with tf.device(SENDER):
            gate = tf.queue.FIFOQueue(1, tf.float32, [[]])
            tell = tf.compat.v1.placeholder(tf.float32, [])
            open_gate = gate.enqueue(tell)
            sent = tf.raw_ops.CollectiveBcastSend(
                input=tf.fill([size], gate.dequeue()), instance_key=1, **group
            )
        with tf.device(RECEIVER):
            got = tf.raw_ops.CollectiveBcastRecv(T=tf.float32, instance_key=1, **group)
        step = [sent.op, got.op]
        # The first time the two find each other.
        session.run(open_gate, {tell: 1.0})
        session.run(step)
        said: dict[str, Any] = {"staged before": own_counters()["staged_bytes"]}
        running = threading.Thread(target=outcome, args=(session, step, limit, said), daemon=True)
        running.start()
        time.sleep(limit / 3)
        receiver = int(Path(settings["pid"]).read_text())
        try:
            stand_still(receiver)
            session.run(open_gate, {tell: 2.0})
            running.join(2 * limit)
            said["ended meanwhile"] = not running.is_alive()
            said["status"] = own_counters()
            said["staged"] = said["status"]["staged_bytes"] - said.pop("staged before")
        finally:
            os.kill(receiver, signal.SIGCONT)
        running.join(60)
        assert not running.is_alive(), "it waits though the receiver goes on"
    print(json.dumps(said), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
