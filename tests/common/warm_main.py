"""A Python that has imported TensorFlow, and makes servers by forking: see warm.py.

Its argument is the descriptor of a socket. A message with the descriptors of standard input,
output and error is a server to make, `{"env": …, "settings": …}`, and answered with its process;
`{"ended": PID}` is answered with the status of one that has ended, and else with null.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

import tensorflow  # noqa: F401
from tensorflow.python import ar_grpc  # noqa: F401

from common import counters, server_main  # noqa: F401

_LONGEST = 1 << 20


def _become(order: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
    """Makes this process the one that was ordered; what its server is to be."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(order["env"])
    settings: dict[str, Any] = order["settings"]
    return settings


def serve_orders(orders: socket.socket) -> dict[str, Any] | None:
    """In the forked process what its server is to be; here, when nobody orders any more, None."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(orders, _LONGEST, 3)
        if not message:
            return None
        order = json.loads(message)
        if "ended" in order:
            pid, status = os.waitpid(order["ended"], os.WNOHANG)
            orders.send(json.dumps(os.waitstatus_to_exitcode(status) if pid else None).encode())
            continue
        pid = os.fork()
        if pid == 0:
            orders.close()
            return _become(order, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        orders.send(json.dumps(pid).encode())


def main() -> None:
    orders = socket.socket(fileno=int(sys.argv[1]))
    orders.send(b"ready")
    settings = serve_orders(orders)
    if settings is not None:
        # Returns where this process is to end the ordinary way.
        server_main.serve(settings)


if __name__ == "__main__":
    main()
