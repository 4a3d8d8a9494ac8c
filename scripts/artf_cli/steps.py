"""Bazel's progress lines as steps of a total, with the time left."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from artf_cli.console import note
from artf_cli.progress import Meter

_LINE = re.compile(r"\[([\d,]+) / ([\d,]+)\] (.*)")


class Steps:
    """Shows the progress of one build; a context manager. `clock` gives seconds.

    Bazel comes upon the steps while the first ones run (`build/bazelrc` has how it does so early);
    a total is shown from when two lines agree on it.
    """

    def __init__(self, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._title = title
        self._clock = clock
        self._found = 0
        self._total = 0
        self._meter: Meter | None = None

    def __enter__(self) -> Steps:
        return self

    def __exit__(self, *_: object) -> None:
        if self._meter:
            self._meter.__exit__()

    def take(self, line: str) -> None:
        """One line that Bazel wrote; those that are not of its progress are passed over."""
        matched = _LINE.match(line)
        if not matched:
            return
        done, found = (int(number.replace(",", "")) for number in matched.group(1, 2))
        detail = matched.group(3).partition(";")[0]
        if found == self._found > self._total:
            self._start(found)
        self._found = found
        if self._meter and found == self._total:
            self._meter.show(done, detail)
        else:
            note(f"{self._title}: {done} done, counting the rest")

    def _start(self, total: int) -> None:
        self.__exit__()
        self._total = total
        self._meter = Meter(self._title, total, clock=self._clock)
        self._meter.__enter__()
