"""What a user of the wheel writes: two processes, one server each, a step between them.

Prints one JSON object: by protocol the sum of a tensor that came from the other process, and the
paths that this process's connections took.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

import tensorflow as tf
from tensorflow.python import ar_grpc

ELEMENTS = 1 << 20


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve(cluster: dict[str, list[str]], job: str, protocol: str) -> Any:
    return tf.distribute.Server(cluster, job_name=job, task_index=0, protocol=protocol)


def step(protocol: str) -> dict[str, Any]:
    cluster = {job: [f"127.0.0.1:{free_port()}"] for job in ("ps", "worker")}
    words = [sys.executable, __file__, json.dumps(cluster), protocol]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as other:
        server = serve(cluster, "worker", protocol)
        with tf.Graph().as_default(), tf.compat.v1.Session(server.target) as session:
            with tf.compat.v1.device("/job:ps/task:0"):
                tensor = tf.range(ELEMENTS, dtype=tf.int64)
            with tf.compat.v1.device("/job:worker/task:0"):
                total = tf.reduce_sum(tensor)
            found = int(session.run(total))
        paths = ar_grpc.status()["paths"].get(f"ipv4:{cluster['ps'][0]}", "none")
        assert other.stdin is not None
        other.stdin.close()
    return {"sum": found, "path": paths}


def main() -> None:
    if len(sys.argv) > 1:
        _server = serve(json.loads(sys.argv[1]), "ps", sys.argv[2])
        sys.stdin.read()

    else:
        result = {"version": tf.__version__, "file": tf.__file__}
        result.update({protocol: step(protocol) for protocol in ("grpc+ar", "grpc")})
        print(json.dumps(result), flush=True)
    # A TensorFlow server cannot be shut down: leave without running its destructors.
    os._exit(0)


if __name__ == "__main__":
    main()
