"""A Python that has imported TensorFlow, and makes servers by forking: see warm.py.

Its argument is the descriptor of a socket. A message is a server to make, `{"env": …, "settings":
…}`, with four descriptors: its standard input, output and error, and one that is told of it, a line
each: its process, and in the end its exit status.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

import tensorflow  # noqa: F401
from tensorflow.python import ar_grpc  # noqa: F401

from common import counters, server_main  # noqa: F401

_LONGEST = 1 << 20
_DESCRIPTORS = 4


class _Maker:
    """Takes orders until nobody can give any."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._told: dict[int, int] = {}  # process → the descriptor that is told of it
        self._woken, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        # A Ctrl-C is for pytest, which then ends what it has started.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)

    def run(self) -> dict[str, Any] | None:
        """In a forked process what its server is to be; here, at the end, None."""
        while True:
            ready, _, _ = select.select([self._orders, self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._tell_of_ended()
            if self._orders in ready:
                message, descriptors, _, _ = socket.recv_fds(self._orders, _LONGEST, _DESCRIPTORS)
                if not message:
                    return None
                order = json.loads(message)
                pid = os.fork()
                if pid == 0:
                    return self._become(order, descriptors)
                *_, told = descriptors
                for descriptor in descriptors[:-1]:
                    os.close(descriptor)
                self._told[pid] = told
                self._tell(told, pid)

    def _tell_of_ended(self) -> None:
        while self._told:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            told = self._told.pop(pid)
            self._tell(told, os.waitstatus_to_exitcode(status))
            os.close(told)

    @staticmethod
    def _tell(told: int, number: int) -> None:
        # Whoever has ordered it may have gone.
        with suppress(BrokenPipeError):
            os.write(told, f"{number}\n".encode())

    def _become(self, order: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._orders.close()
        for descriptor in (self._woken, self._wakes, *self._told.values()):
            os.close(descriptor)
        *standard, told = descriptors
        os.close(told)
        for number, descriptor in enumerate(standard):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(order["env"])
        settings: dict[str, Any] = order["settings"]
        return settings


def main() -> None:
    orders = socket.socket(fileno=int(sys.argv[1]))
    maker = _Maker(orders)
    orders.send(b"ready")
    settings = maker.run()
    if settings is not None:
        # Returns where this process is to end the ordinary way.
        server_main.serve(settings)


if __name__ == "__main__":
    main()
