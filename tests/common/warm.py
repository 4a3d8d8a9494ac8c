"""Servers that need not import TensorFlow first: they are forked from a Python that has.

The import takes five seconds of a processor, and more than fifteen in a virtual host. A server's
environment is as of its start all the same, so this is for those whose variables nobody reads
before a server starts: ours. With --full each server has a Python that was started for it.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from common.virtual_host import SLOWER, inside

_MAIN = Path(__file__).with_name("warm_main.py")
_READY_S = 60.0 * (SLOWER if inside() else 1)
_END_S = 30.0
_POLL_S = 0.005
#: Of variables that are read when a server starts, and not before; but for one, which the library
#: reads when it is loaded.
_OURS, _AT_LOAD = "AR_GRPC_", "AR_GRPC_ARENA"
#: Of pytest, another one for each test.
_PASSING = ("PYTEST_CURRENT_TEST",)


class Forked:
    """A server's process, as much like subprocess.Popen as its tests need."""

    def __init__(self, stdin: int, stdout: int, told: int) -> None:
        self.stdin: IO[bytes] | None = os.fdopen(stdin, "wb")
        self.stdout: IO[bytes] | None = os.fdopen(stdout, "rb")
        self.returncode: int | None = None
        self._told = os.fdopen(told, "rb", buffering=0)
        line = self._line(_READY_S)
        assert line, "the Python of the servers made none; its words are among pytest's"
        self.pid = int(line)

    def _line(self, seconds: float) -> bytes | None:
        """What is told, if it is in time; empty where nobody can tell any more."""
        if not select.select([self._told], [], [], seconds)[0]:
            return None
        # Written at once, and the next one comes after this was read, or with the end.
        return self._told.readline()

    def poll(self) -> int | None:
        """Its exit status, once it has ended: of a signal the negative number."""
        if self.returncode is None:
            line = self._line(0)
            if line:
                self.returncode = int(line)
            elif line is not None and not Path(f"/proc/{self.pid}").exists():
                # The Python of the servers has gone, and with it the status.
                self.returncode = -signal.SIGKILL
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
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class _Python:
    """The Python that forks."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(_MAIN), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=env,
                pass_fds=[theirs.fileno()],
            )
        self._orders.settimeout(_READY_S)
        try:
            assert self._orders.recv(16) == b"ready", "the Python of the servers did not start"
        except BaseException:
            self.close(0)
            raise

    def alive(self) -> bool:
        return self._process.poll() is None

    def fork(self, env: Mapping[str, str], settings: Mapping[str, Any], stderr: int) -> Forked:
        stdin, in_parent = os.pipe()
        from_child, stdout = os.pipe()
        told, tells = os.pipe()
        order = json.dumps({"env": env, "settings": settings}).encode()
        try:
            socket.send_fds(self._orders, [order], [stdin, stdout, stderr, tells])
        finally:
            for descriptor in (stdin, stdout, tells):
                os.close(descriptor)
        return Forked(in_parent, from_child, told)

    def close(self, seconds: float = _END_S) -> None:
        """It ends when nobody can order any more, its servers when nobody listens to them."""
        self._orders.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
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
        if self._python is None or not self._python.alive():
            self.close()
            self._python = _Python(self._env)
        return self._python.fork(env, settings, stderr)

    def close(self) -> None:
        if self._python:
            self._python.close()
            self._python = None


def _theirs(env: Mapping[str, str]) -> dict[str, str]:
    """What of an environment a Python may read before it has a server."""
    return {
        name: value
        for name, value in env.items()
        if name == _AT_LOAD or not name.startswith((_OURS, *_PASSING))
    }


#: Of this pytest.
WARM = Warm()
