"""Runs pytest: alone with its output as it comes, or several side by side, each one's whole."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

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


class OutOfTime(Exception):
    """Commands that did not end in time, and were ended: `late` has their places."""

    def __init__(self, late: Sequence[int]) -> None:
        super().__init__(f"{len(late)} commands did not end in time")
        self.late = late


def run(
    commands: Sequence[Command], deadline: float | None = None, at_once: int = sys.maxsize
) -> list[int]:
    """The exit statuses of commands, which start in their order, at most `at_once` at a time.

    When this process is interrupted, or `deadline` (of time.monotonic) passes, each gets time to
    take down its fixtures. Raises OutOfTime for the latter, also of those that had yet to start.
    """
    processes: list[subprocess.Popen[bytes]] = []
    shown: set[int] = set()
    try:
        while len(shown) < len(commands):
            free = at_once - len(processes) + len(shown)
            for command in commands[len(processes) :][:free]:
                processes.append(_start(command))
            _show_ended(commands, processes, shown)
            late = [index for index in range(len(commands)) if index not in shown]
            if late and deadline is not None and time.monotonic() > deadline:
                raise OutOfTime(late)
            time.sleep(_POLL_S)
        return [process.wait() for process in processes]
    except BaseException as error:
        # A Ctrl-C has reached the whole foreground, pytest too, and a second one would stop it.
        if not isinstance(error, KeyboardInterrupt):
            for process in processes:
                process.send_signal(signal.SIGINT)
        limit = time.monotonic() + _LEAVE_S
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, limit - time.monotonic()))
        raise
    finally:
        for process in processes:
            process.kill()
            process.wait()
        _show_ended(commands, processes, shown)


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


def _show_ended(
    commands: Sequence[Command], processes: Sequence[subprocess.Popen[bytes]], shown: set[int]
) -> None:
    """Shows the output of those that have ended since."""
    for index, process in enumerate(processes):
        if index in shown or process.poll() is None:
            continue
        command = commands[index]
        if command.log is not None:
            text = command.log.read_text(errors="replace")
            sys.stdout.write(f"---- {command.title} ----\n{text}")
            sys.stdout.flush()
        shown.add(index)
