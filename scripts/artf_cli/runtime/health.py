"""Trains one step over this container's server, and exits 0 when the result is right.

Where `TASK` and `CLUSTER` name a server (see settings.py), the step runs there; else between two
servers that live only as long as this check.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import settings
import tensorflow as tf

_LIMIT_MS = 20_000
_RATE = 0.5


def _own_servers(protocol: str) -> tuple[str, str, list[Any]]:
    """(the master, the device of the variable, the servers) of a cluster inside this process."""
    first = tf.distribute.Server({"ps": ["127.0.0.1:0"]}, protocol=protocol, start=True)
    cluster = {"ps": [first.target.partition("//")[2]], "worker": ["127.0.0.1:0"]}
    second = tf.distribute.Server(cluster, job_name="worker", task_index=0, protocol=protocol)
    return second.target, "/job:ps/task:0", [first, second]


def _running_server(protocol: str) -> tuple[str, str]:
    """(the master, its device) of the server that this container runs."""
    cluster, job, index = settings.place()
    port = cluster[job][index].rpartition(":")[2]
    return f"{protocol}://127.0.0.1:{port}", f"/job:{job}/task:{index}"


def main() -> None:
    """One step of gradient descent on y = w·x, whose result is known."""
    settings.drop_proxies()
    protocol = settings.protocol()
    servers: list[Any] = []
    if os.environ.get("TASK"):
        target, device = _running_server(protocol)
    else:
        target, device, servers = _own_servers(protocol)
    # Isolated: the variable is this session's own, and goes with it.
    config = tf.compat.v1.ConfigProto(
        operation_timeout_in_ms=_LIMIT_MS, isolate_session_state=True, device_filters=[device]
    )
    if servers:
        config.device_filters.append("/job:worker/task:0")
    x = np.arange(1, 9, dtype=np.float32)
    with tf.Graph().as_default(), tf.compat.v1.device(device):
        w = tf.compat.v1.get_variable("w", initializer=np.ones(8, np.float32), use_resource=True)
        loss = tf.reduce_sum(w * x)
        step = tf.compat.v1.train.GradientDescentOptimizer(_RATE).minimize(loss)
        with tf.compat.v1.Session(target, config=config) as session:
            session.run(w.initializer)
            session.run(step)
            found = session.run(w)
    if not np.array_equal(found, 1 - _RATE * x):
        sys.exit(f"a step of training gave {found.tolist()}, not {(1 - _RATE * x).tolist()}")
    sys.stdout.write(f"a step of training over {target} is right\n")
    sys.stdout.flush()
    sys.stderr.flush()
    # A TensorFlow server cannot be shut down: leave without running its destructors.
    os._exit(0)


if __name__ == "__main__":
    main()
