"""Runs pytest: alone with its output as it comes, or several side by side, each one's whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from artf_cli.paths import REPO

# The longest fixture to take down is the container suite's engine.
_LEAVE_S = 90.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Command:
    """What to run; with a `log`, output goes there and is shown once the command has ended."""

    words: Sequence[str]
    env: Mapping[str, str]
    log: Path | None = None
    title: str = ""


class Ended(NamedTuple):
    """How a command ended: its exit status, and the seconds that it took, of the clock and of
    processors, with those of all its children that it waited for."""

    status: int
    wall_s: float
    cpu_s: float


class OutOfTime(Exception):
    """Commands that did not end in time, and were ended: `late` has their places."""

    def __init__(self, late: Sequence[int]) -> None:
        super().__init__(f"{len(late)} commands did not end in time")
        self.late = late


class _Child:
    """A command that runs, or has ended."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._began = time.monotonic()
        self.process = _start(command)
        self.ended: Ended | None = None

    def look(self) -> bool:
        """Whether it has ended; when that is seen, what it wrote is shown."""
        if self.ended is None:
            try:
                # Popen would not tell what it used. Nothing else here may wait for it.
                pid, status, used = os.wait4(self.process.pid, os.WNOHANG)
                cpu_s = used.ru_utime + used.ru_stime
            except ChildProcessError:
                # A Ctrl-C came between that and what follows.
                pid, status, cpu_s = self.process.pid, int(signal.SIGINT), 0.0
            if pid:
                self.process.returncode = os.waitstatus_to_exitcode(status)
                self.ended = Ended(self.process.returncode, time.monotonic() - self._began, cpu_s)
                self._show()
        return self.ended is not None

    def signal(self, number: int) -> None:
        # Popen's own way waits for it first.
        if not self.look():
            os.kill(self.process.pid, number)

    def _show(self) -> None:
        if self._command.log is not None:
            text = self._command.log.read_text(errors="replace")
            sys.stdout.write(f"---- {self._command.title} ----\n{text}")
            sys.stdout.flush()

    def leave(self, limit: float) -> None:
        """Waits for its end until `limit`, a time of time.monotonic()."""
        while not self.look() and time.monotonic() < limit:
            time.sleep(_POLL_S)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.leave(float("inf"))


def run(
    commands: Sequence[Command], deadline: float | None = None, at_once: int = sys.maxsize
) -> list[Ended]:
    """How commands ended. They start in their order, at most `at_once` at a time.

    When this process is interrupted, or `deadline` (of time.monotonic) passes, each gets time to
    take down its fixtures. Raises OutOfTime for the latter, also of those that had yet to start.
    """
    waiting = dict(enumerate(commands))
    running: dict[int, _Child] = {}
    try:
        while True:
            late = [place for place, child in running.items() if not child.look()]
            if not late and not waiting:
                return [child.ended for _, child in sorted(running.items()) if child.ended]
            if deadline is not None and time.monotonic() > deadline:
                raise OutOfTime(sorted([*late, *waiting]))
            for place in list(waiting)[: at_once - len(late)]:
                running[place] = _Child(waiting.pop(place))
            time.sleep(_POLL_S)
    except BaseException as error:
        # A Ctrl-C has reached the whole foreground, pytest too, and a second one would stop it.
        if not isinstance(error, KeyboardInterrupt):
            for child in running.values():
                child.signal(signal.SIGINT)
        limit = time.monotonic() + _LEAVE_S
        for child in running.values():
            child.leave(limit)
        raise
    finally:
        for child in running.values():
            child.kill()


def _start(command: Command) -> subprocess.Popen[bytes]:
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    if ignored:
        # A job in the background starts so, and pytest would ignore it, too.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        if command.log is None:
            return subprocess.Popen(command.words, cwd=REPO, env=command.env)
        with command.log.open("wb") as log:
            return subprocess.Popen(
                command.words,
                cwd=REPO,
                env=command.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
    finally:
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
