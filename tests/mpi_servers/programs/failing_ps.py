"""A ps whose program fails when it is told to, and a worker that waits in a step for it.

The ps raises an exception, or ends with the status `exits`, while its server still serves: what the
worker waits for would never come.
"""

from __future__ import annotations

import json
import sys

import tensorflow as tf

from common.pair import PS, session_at
from common.sessions import task_device


def main() -> None:
    settings = json.loads(sys.argv[1])
    job, index = settings["task"].split(":")
    server = tf.distribute.Server(
        settings["cluster"], job_name=job, task_index=int(index), protocol="grpc+mpi"
    )
    print("READY", flush=True)
    if settings["task"] == PS:
        sys.stdin.readline()
        # Not flushed: it is not lost.
        sys.stdout.write("FAILS\n")
        if "exits" in settings:
            sys.exit(settings["exits"])
        raise ValueError("on purpose")
    with session_at(server.target, seconds=150) as session:
        with tf.device(task_device(PS)):
            never = tf.queue.FIFOQueue(1, [tf.float32]).dequeue()
        print("WAITS", flush=True)
        session.run(never)


if __name__ == "__main__":
    main()
