"""Servers that need not import TensorFlow first: they are forked from a Python that has.

The import takes five seconds of a processor, and twenty in a virtual host. A server's environment
is as of its start all the same, so this is for those whose variables nobody reads before a server
starts: ours. With --full each server has a Python that was started for it.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

_MAIN = Path(__file__).with_name("warm_main.py")
_READY_S = 300.0
_LONGEST = 1 << 16
_POLL_S = 0.005
#: Of variables that are read when a server starts, and not before.
_OURS = "AR_GRPC_"
#: Of pytest, another one for each test.
_PASSING = ("PYTEST_CURRENT_TEST",)


class Forked:
    """A server's process, as much like subprocess.Popen as its tests need."""

    def __init__(self, python: _Python, pid: int, stdin: int, stdout: int) -> None:
        self._python = python
        self.pid = pid
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = os.fdopen(stdin, "wb")
        self.stdout: IO[bytes] | None = os.fdopen(stdout, "rb")

    def poll(self) -> int | None:
        """Its exit status, once it has ended: of a signal the negative number."""
        if self.returncode is None:
            self.returncode = self._python.ask({"ended": self.pid})
        return self.returncode

    def wait(self, timeout: float = math.inf) -> int:
        """The same; raises subprocess.TimeoutExpired where it does not end in time."""
        limit = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > limit:
                raise subprocess.TimeoutExpired([str(_MAIN)], timeout)
            time.sleep(_POLL_S)
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        # Its number is no other process's until `poll` has seen its end.
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


class _Python:
    """The Python that forks."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(_MAIN), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=env,
                pass_fds=[theirs.fileno()],
            )
        self._orders.settimeout(_READY_S)
        assert self._orders.recv(_LONGEST) == b"ready", "the Python of the servers does not start"

    def ask(self, order: Mapping[str, Any], *descriptors: int) -> Any:
        with self._lock:
            socket.send_fds(self._orders, [json.dumps(order).encode()], descriptors)
            return json.loads(self._orders.recv(_LONGEST))

    def fork(self, env: Mapping[str, str], settings: Mapping[str, Any], stderr: int) -> Forked:
        stdin, in_parent = os.pipe()
        from_child, stdout = os.pipe()
        try:
            pid = self.ask({"env": env, "settings": settings}, stdin, stdout, stderr)
        finally:
            os.close(stdin)
            os.close(stdout)
        return Forked(self, pid, in_parent, from_child)

    def close(self) -> None:
        """It ends when nobody can order any more, its servers when nobody listens to them."""
        self._orders.close()
        self._process.wait()


class Warm:
    """Makes servers in this process's environment, with other variables of ours."""

    def __init__(self) -> None:
        self._python: _Python | None = None
        self._env: dict[str, str] | None = None

    def allow(self, env: Mapping[str, str]) -> None:
        """From now on `start` makes servers, where the environment of all is this one."""
        self._env = dict(env)

    def start(
        self, env: Mapping[str, str], settings: Mapping[str, Any], stderr: int
    ) -> Forked | None:
        """The server of `settings` in this environment, its standard error there; None where it
        must have a Python of its own."""
        if self._env is None or _theirs(env) != _theirs(self._env):
            return None
        self._python = self._python or _Python(self._env)
        return self._python.fork(env, settings, stderr)

    def close(self) -> None:
        if self._python:
            self._python.close()


def _theirs(env: Mapping[str, str]) -> dict[str, str]:
    """What of an environment a Python may read before it has a server."""
    return {
        name: value
        for name, value in env.items()
        if not name.startswith(_OURS) and name not in _PASSING
    }


#: Of this pytest.
WARM = Warm()
