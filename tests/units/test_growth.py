"""What is called a leak, from samples of the heap."""

from __future__ import annotations

import pytest

from common.growth import WINDOWS, most, per_step

#: By how much the windows of 200 steps grew in a run in which nothing was left, in bytes.
QUIET = (25240, 19356, 15168, 10332, 17464)


def grown(windows: tuple[int, ...], leak: int, steps: int) -> float:
    window = steps // (2 * WINDOWS)
    samples = [{"heap": 0}]
    for caches in windows:
        samples.append({"heap": samples[-1]["heap"] + caches + leak * window})
    return per_step(samples, steps)["heap"]


@pytest.mark.parametrize(("steps", "leak"), [(2000, 133), (6000, 65), (100000, 40)])
def test_what_each_step_leaves_is_told_from_what_the_caches_keep(steps: int, leak: int) -> None:
    assert grown(QUIET, 0, steps) <= most(steps)
    assert grown(QUIET, leak, steps) > most(steps)


def test_a_pool_that_grows_once_is_no_leak() -> None:
    assert grown((*QUIET[:-1], 1 << 20), 0, 2000) <= most(2000)
