"""One TensorFlow server; says READY, then serves until its parent closes the pipe (or dies).

The lines `status` and `counters` on standard input are answered with one line of JSON: what
`grpc+ar` counts, and the same with this process's TCP connections.
Any other line makes main() return, which ends the interpreter the ordinary way.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    settings = json.loads(sys.argv[1])
    import tensorflow as tf
    from tensorflow.python import ar_grpc

    from common.counters import own_counters

    server = tf.distribute.Server(
        tf.train.ClusterSpec(settings["cluster"]),
        job_name=settings["job"],
        task_index=settings["index"],
        protocol=settings["protocol"],
        config=tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4),
    )
    print("READY", server.target, flush=True)
    answers = {"status\n": ar_grpc.status, "counters\n": own_counters}
    for line in sys.stdin:
        if line not in answers:
            return
        print(json.dumps(answers[line]()), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
