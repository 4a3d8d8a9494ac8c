"""A bar on standard error for work that counts its steps; plain lines off a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from artf_cli.console import err, note

_LINE_EVERY_S = 5.0


# The time left follows from the steps of the last minute, since not all take the same.
_SPEED_OVER_S = 60.0


class Meter:
    """Shows `title`, how many of `total` steps are done, the time left, and a detail.

    A context manager. `clock` gives seconds.
    """

    def __init__(
        self,
        title: str,
        total: int,
        shown: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title = title
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[detail]}", markup=False),
            console=err,
            transient=True,
            speed_estimate_period=_SPEED_OVER_S,
            get_time=clock,
        )
        self._clock = clock
        self._live = shown and err.is_terminal
        self._lines = shown and not err.is_terminal
        self._last = clock()
        self._task = self._bar.add_task(title, total=total, detail="")

    def __enter__(self) -> Meter:
        if self._live:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._bar.stop()

    @property
    def left(self) -> str:
        """The time left in words, after a comma; empty while it is unknown."""
        seconds = self._bar.tasks[0].time_remaining
        if not seconds:
            return ""
        return f", {seconds:.0f} s left" if seconds < 90 else f", {seconds / 60:.0f} min left"

    def show(self, done: int, detail: str = "") -> None:
        """`done` steps of the total are done."""
        self._bar.update(self._task, completed=done, detail=detail)
        if self._lines and self._clock() - self._last > _LINE_EVERY_S:
            self._last = self._clock()
            total = self._bar.tasks[0].total
            text = f"{self._title}: {done} of {total:.0f}{self.left}"
            note(escape(f"{text}: {detail}" if detail else text))
