"""A `grpc+ar` server of few bytes of memory, with tensors each of which is larger than the last.

Each is freed before the next one is made, so that the process needs little more than the largest.
Prints the last byte of each, and what it holds of the arena at the end.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

MIB = 2**20


def main() -> None:
    settings = json.loads(sys.argv[1])
    # First of all: a page counts for the group in which it is first touched.
    Path(settings["group"], "cgroup.procs").write_text("0")
    import tensorflow as tf
    from tensorflow.python import ar_grpc

    server = tf.distribute.Server(
        tf.train.ClusterSpec({"worker": [settings["address"]]}), protocol=settings["protocol"]
    )
    seen, between = [], []
    for number, mib in enumerate(settings["mib"]):
        with tf.device("/cpu:0"):
            tensor = tf.fill([mib * MIB], tf.constant(number, tf.uint8))
            seen.append(int(tensor[-1]))
            # Stays, so that the next one cannot begin where this one lies.
            between.append(tf.fill([MIB], tensor[-1]))
            del tensor
    arena = ar_grpc.status()["arena"]
    print(json.dumps({"seen": seen, "held": arena["in_use"] + arena["warm_free"]}), flush=True)
    del server


if __name__ == "__main__":
    main()
