"""Progress goes to standard error, results to standard output; colours only on a terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

out = Console(file=sys.stdout, highlight=False)
err = Console(file=sys.stderr, highlight=False)


def note(text: str) -> None:
    """One line of progress on standard error."""
    err.print(f"[dim]artf:[/dim] {text}", soft_wrap=True)


def emit_json(result: dict[str, Any]) -> None:
    """The result object: one line, the last of standard output."""
    sys.stdout.write(json.dumps(result, sort_keys=True) + "\n")
    sys.stdout.flush()


def download_progress() -> Progress:
    """A progress display for downloads (bytes, speed); silent redraws off a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=err,
        transient=True,
    )


@contextmanager
def stage(title: str, seconds: dict[str, float] | None = None) -> Iterator[None]:
    """Shows `title` while the block runs, then its wall time; stores it in `seconds[title]`."""
    begin = time.monotonic()
    if err.is_terminal:
        with Progress(
            SpinnerColumn(), TextColumn(title), TimeElapsedColumn(), console=err, transient=True
        ) as progress:
            progress.add_task(title, total=None)
            yield
    else:
        note(f"{title} …")
        yield
    took = time.monotonic() - begin
    if seconds is not None:
        seconds[title] = round(took, 1)
    note(f"{title}: {took:.1f} s")
