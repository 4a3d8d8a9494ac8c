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


def run(commands: Sequence[Command], deadline: float | None = None) -> list[int]:
    """The exit statuses of commands that run at the same time.

    When this process is interrupted, or `deadline` (of time.monotonic) passes, each gets time to
    take down its fixtures. Raises OutOfTime for the latter.
    """
    processes: list[subprocess.Popen[bytes]] = []
    shown: set[int] = set()
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    try:
        if ignored:
            # A job in the background starts so, and pytest would ignore it, too.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            for command in commands:
                processes.append(_start(command))
        finally:
            if ignored:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        while not _show_ended(commands, processes, shown):
            if deadline is not None and time.monotonic() > deadline:
                late = [i for i, process in enumerate(processes) if process.poll() is None]
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


def _show_ended(
    commands: Sequence[Command], processes: Sequence[subprocess.Popen[bytes]], shown: set[int]
) -> bool:
    """Shows the output of those that have ended since; whether all have."""
    ended = [index for index, process in enumerate(processes) if process.poll() is not None]
    for index in ended:
        command = commands[index]
        if index not in shown and command.log is not None:
            text = command.log.read_text(errors="replace")
            sys.stdout.write(f"---- {command.title} ----\n{text}")
            sys.stdout.flush()
        shown.add(index)
    return len(ended) == len(processes)
