"""Ports for servers that bind them a while after they were chosen."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Container
from pathlib import Path

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOOPBACK = "127.0.0.1"
_WIDTH = 20000
_FIRST = 1024  # below it are the system's


def hold(taken: Container[int] = (), host: str = LOOPBACK) -> socket.socket:
    """A socket bound to a free TCP port of `host` that is not in `taken`; close it to let go.

    The port is below the range that the kernel chooses from: in the time between closing and the
    server's own bind no connection of anybody gets it, and a client that dials a dead server there
    cannot connect to itself. OSError: `host` is no address of this machine.
    """
    low = int(_EPHEMERAL.read_text().split()[0])
    while True:
        port = random.randrange(max(low - _WIDTH, _FIRST), low)
        if port in taken:
            continue
        held = socket.socket()
        try:
            held.bind((host, port))
        except OSError as error:
            held.close()
            if error.errno != errno.EADDRINUSE:
                raise
            continue
        return held
