"""What recv/count_threads.cc, preloaded, has counted in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def new_threads(steps: int, step: Callable[[], object]) -> int:
    """Threads that this process began in `steps` steps, after a first one: what that starts, a
    pool's threads, is not a step's thread."""
    started = ctypes.CDLL(None).threads_started
    started.restype = ctypes.c_long
    step()
    before = started()
    for _ in range(steps):
        step()
    return int(started() - before)
