"""Broadcasts between two programs, each of which runs its own ends of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from common.processes import Outcome, Program, own_address

_SCRIPT = Path(__file__).with_name("broadcast_ends_main.py")
#: How a program is started.
Start = Callable[[Path, dict[str, Any]], Program]


def run_broadcasts(
    folder: Path,
    receive: Start,
    send: Start,
    protocols: tuple[str, str],
    settings: Mapping[str, Any],
    seconds: float = 60,
) -> tuple[Outcome, Outcome]:
    """How the receiver and the sender end, which have these protocols.

    The sender stays until the receiver has ended: it is told that its buffer was sent before the
    last of it is on the wire.
    """
    done = folder / "received"
    shared = {"cluster": {"worker": [own_address() for _ in range(2)]}, "until": str(done)}
    programs = [
        start(_SCRIPT, {**settings, **shared, "index": index, "protocol": protocols[index]})
        for index, start in enumerate((receive, send))
    ]
    try:
        receiver = programs[0].wait(seconds)
        done.touch()
        return receiver, programs[1].wait(seconds)
    finally:
        for program in programs:
            program.kill()
