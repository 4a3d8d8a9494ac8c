"""A bar on standard error for work that counts its steps; plain lines off a terminal."""

from __future__ import annotations

import time

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from artf_cli.console import err, note

_LINE_EVERY_S = 5.0


class Meter:
    """Shows `title`, how many of `total` steps are done, and a detail; a context manager."""

    def __init__(self, title: str, total: int, shown: bool = True) -> None:
        self._title = title
        self._total = total
        self._bar = (
            Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[detail]}"),
                console=err,
                transient=True,
            )
            if shown and err.is_terminal
            else None
        )
        self._lines = shown and self._bar is None
        self._last = time.monotonic()
        self._task = self._bar.add_task(title, total=total, detail="") if self._bar else None

    def __enter__(self) -> Meter:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def show(self, done: int, detail: str = "") -> None:
        """`done` steps of the total are done."""
        if self._bar and self._task is not None:
            self._bar.update(self._task, completed=done, detail=detail)
        elif self._lines and time.monotonic() - self._last > _LINE_EVERY_S:
            self._last = time.monotonic()
            note(f"{self._title}: {done} of {self._total} {detail}".rstrip())
