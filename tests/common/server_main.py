"""One TensorFlow server; says READY, then serves until its parent closes the pipe (or dies).

The line `status` on standard input is answered with the counters of `grpc+ar`, as one line of JSON.
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

    server = tf.distribute.Server(
        tf.train.ClusterSpec(settings["cluster"]),
        job_name=settings["job"],
        task_index=settings["index"],
        protocol=settings["protocol"],
        config=tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4),
    )
    print("READY", server.target, flush=True)
    for line in sys.stdin:
        if line != "status\n":
            return
        print(json.dumps(ar_grpc.status()), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
