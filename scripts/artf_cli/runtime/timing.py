"""Steps one after the other for a while, each timed."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from task import run_step


def burst(
    step: Callable[[], Any],
    start: float,
    seconds: float,
    least: int,
    most: int | None = None,
) -> dict[str, Any]:
    """Runs steps for `seconds` from `start` (time.monotonic) on: from `least` to `most` of them.

    Returns the steps' number and times in µs, and the seconds that they took together; a try that
    is run again counts in neither. Collect garbage before: none is collected meanwhile.
    """
    samples: list[float] = []
    lost_us: list[float] = []
    timed = partial(_timed_us, step, lost_us)
    gc.disable()
    try:
        time.sleep(max(0.0, start - time.monotonic()))
        begin = time.monotonic()
        while len(samples) < least or (
            (most is None or len(samples) < most) and time.monotonic() - begin < seconds
        ):
            samples.append(run_step(timed))
        took = time.monotonic() - begin - sum(lost_us) / 1e6
    finally:
        gc.enable()
    return {"samples_us": samples, "steps": len(samples), "seconds": took}


def _timed_us(step: Callable[[], Any], lost_us: list[float]) -> float:
    """The time of one try of a step, in µs; that of one that failed goes to `lost_us`."""
    start = time.perf_counter_ns()
    try:
        step()
    except Exception:
        lost_us.append((time.perf_counter_ns() - start) / 1000)
        raise
    return (time.perf_counter_ns() - start) / 1000
