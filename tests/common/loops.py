"""A step that runs over and over while a test does something to the servers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable

from common.ar import eventually
from common.limits import LATE, seen
from common.sessions import lost


def _words(error: Exception | None) -> str:
    """TensorFlow's errors keep their message out of their repr()."""
    return f"{error!r}: {error}"


class Loop(threading.Thread):
    """Runs a step whose value is 0.0 over and over until it fails, or is to stop."""

    def __init__(self, step: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._step = step
        self._enough = threading.Event()
        self.steps = 0
        self.slowest = 0.0
        self.wrong: list[Any] = []
        self.error: Exception | None = None
        self.failed_at = 0.0
        self.start()

    def run(self) -> None:
        try:
            while not self._enough.is_set():
                began = time.monotonic()
                value = self._step()
                if self.steps:  # the first one connects, too
                    self.slowest = max(self.slowest, time.monotonic() - began)
                if value != 0.0:
                    self.wrong.append(value)
                self.steps += 1
        except Exception as error:
            self.failed_at = time.monotonic()
            self.error = error

    def wait_steps(self, count: int, seconds: float = 30) -> None:
        """Until `count` more steps have ended."""
        wanted = self.steps + count
        eventually(lambda: self.steps >= wanted or self.error is not None, seconds)
        assert self.error is None and self.steps >= wanted, _words(self.error)

    def outcome(self, seconds: float = LATE) -> Exception | None:
        """What ended it, which must be there within `seconds`."""
        self.join(seconds)
        assert not self.is_alive(), f"no outcome within {seconds:.1f} s"
        assert not self.wrong, f"wrong values: {self.wrong[:5]}"
        return self.error

    def finish(self) -> Exception | None:
        """Ends it after the step that runs; the error that ended it before, if one did."""
        self._enough.set()
        return self.outcome(30)

    def is_lost(self, task: str, since: float) -> None:
        """It fails as the loss of this task fails, which died at `since` (of time.monotonic()),
        and within the time that `seen` allows, which only a second step can tell."""
        assert self.slowest > 0, "no step but the first had ended before"
        error = self.outcome(30)
        assert lost(error, task), _words(error)
        assert self.failed_at - since < seen(self.slowest)


@contextmanager
def undisturbed(step: Callable[[], Any], seconds: float) -> Iterator[None]:
    """What happens meanwhile is nothing to this step: it runs before, all the while, and after,
    and after the first time, which connects, in less than `seconds`."""
    loop = Loop(step)
    loop.wait_steps(2, 2 * seconds)
    yield
    loop.wait_steps(2, 2 * seconds)
    error = loop.finish()
    assert error is None, _words(error)
    assert loop.slowest < seconds


def callable_of(session: Any, tensor: Any) -> Callable[[], Any]:
    """A step that makes itself ready when it is first run, since that may wait for the master."""
    made: list[Callable[[], Any]] = []

    def step() -> Any:
        if not made:
            made.append(session.make_callable(tensor))
        return made[0]()

    return step
