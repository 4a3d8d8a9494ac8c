"""Connects to a server as another server of `grpc+ar` would, and says over what.

`reach_peer.py HOST:PORT SECONDS`, in the user's environment. The last line of standard output is
{"path": fabric or null}; what AR-gRPC says of it is on standard error. It asks the server for its
status, as every master does of its workers, and for nothing else.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

import ports
import tensorflow as tf
from tensorflow.python import ar_grpc


def _open_session(server: Any) -> None:
    with tf.Graph().as_default() as graph, tf.device("/job:doctor/task:0"):
        step = tf.no_op()
    # Makes the session, for which the master asks all tasks for their devices, until they answer.
    # Unlike `list_devices`, waiting for it leaves Python to others.
    tf.compat.v1.Session(server.target, graph=graph).run(step)


def main() -> None:
    """Prints the object; ends without the server, which cannot be shut down."""
    address, seconds = sys.argv[1], float(sys.argv[2])
    with ports.hold() as held:
        own = f"{ports.LOOPBACK}:{held.getsockname()[1]}"
    cluster = {"doctor": [own], "peer": [address]}
    server = tf.compat.v1.train.Server(cluster, job_name="doctor", protocol="grpc+ar")
    threading.Thread(target=_open_session, args=(server,), daemon=True).start()
    limit = time.monotonic() + seconds
    path = None
    while path is None and time.monotonic() < limit:
        time.sleep(0.05)
        paths = ar_grpc.status()["paths"]
        path = next((paths[name] for name in paths if name.partition(":")[2] == address), None)
    print(json.dumps({"path": path}), flush=True)
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
