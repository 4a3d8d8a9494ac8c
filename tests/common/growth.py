"""What servers grow by in a step, told from what they grow by once."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import pytest

from common.processes import Cluster

Key = TypeVar("Key", bound=Hashable)

#: Half of the steps warm up, the other half is measured in this many windows.
WINDOWS = 5
#: Bytes of the heap that the threads' caches of freed memory may take in a window.
_CACHES = 20 * 2**10
#: Bytes of the heap that a step may leave.
_LEFT = 30.0
#: The base wheel's LocalRendezvous keeps for good what was ever aborted, and CleanupGraph aborts a
#: step that ended well, too, where it comes before the executors have let go: 1 to 10 of 100 steps,
#: over every protocol. They are counted; each is 1.3 to 1.7 KB, by 100,000 steps of two tests.
_KEPT = 1700


def _window(steps: int) -> int:
    return steps // (2 * WINDOWS)


def most(steps: int) -> float:
    """Bytes that per_step() may be of the heap where no step leaves anything of ours."""
    return _LEFT + _CACHES / _window(steps)


def heap(cluster: Cluster, task: str) -> int:
    """Bytes that malloc has given out in a task, but for the rendezvous that upstream keeps.

    Skips the test where the task's glibc cannot tell.
    """
    found = cluster[task].heap()
    if found is None:
        pytest.skip("glibc before 2.33 does not tell what malloc has given out: no mallinfo2")
    return found - _KEPT * cluster[task].aborted()


def sampled(
    steps: int, run: Callable[[int], None], look: Callable[[], Mapping[Key, int]]
) -> list[Mapping[Key, int]]:
    """What look() saw after the warm-up and after each window; `run(n)` runs n steps to the end."""
    window = _window(steps)
    run(steps - WINDOWS * window)
    samples = [look()]
    for _ in range(WINDOWS):
        run(window)
        samples.append(look())
    return samples


def per_step(samples: Sequence[Mapping[Key, int]], steps: int) -> dict[Key, float]:
    """The growth in a step: the median of the windows.

    A pool or a table that became larger shows in one window, what each step leaves in all of them.
    """
    return {
        key: statistics.median(
            after[key] - before[key] for before, after in zip(samples, samples[1:])
        )
        / _window(steps)
        for key in samples[0]
    }
