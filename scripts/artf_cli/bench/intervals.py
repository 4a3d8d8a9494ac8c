"""How sure a figure is: the spread of its rounds, and an interval around a ratio of two.

Protocols take turns, so a round gives a pair of samples that saw the same machine. The ratio is the
median of the pairs' ratios, so that it lies in its interval, which is exact whatever their
distribution: order statistics, from the sign test (Conover, Practical Nonparametric Statistics, 3rd
edition, section 3.2).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from math import comb
from typing import NamedTuple

#: An interval holds the true median with at least this probability.
CONFIDENCE = 0.95
#: Fewer rounds give no such interval, however far it reaches.
LEAST_ROUNDS = 6


class Comparison(NamedTuple):
    """A median of ratios; `interval` is (low, high), None of fewer than LEAST_ROUNDS rounds."""

    ratio: float
    interval: tuple[float, float] | None


def compare(over: Sequence[float], under: Sequence[float]) -> Comparison:
    """The median of `over` by `under`, samples above 0 of the same rounds in order.

    For times give the baseline first, for rates give it last: then above 1 is better than it.
    """
    if len(over) != len(under):
        raise ValueError(f"{len(over)} rounds cannot be paired with {len(under)}")
    ratios = sorted(a / b for a, b in zip(over, under))
    cut = _cut(len(ratios))
    return Comparison(statistics.median(ratios), (ratios[cut - 1], ratios[-cut]) if cut else None)


def _cut(rounds: int) -> int:
    """The rank from either end at which the interval ends; 0 when even the extremes are too few."""
    cut, missed = 0, 0.0
    while cut < rounds:
        # Both tails: the chance that the median lies beyond the rank after `cut`.
        missed += 2 * comb(rounds, cut) / 2**rounds
        if missed > 1 - CONFIDENCE:
            break
        cut += 1
    return cut


def spread(samples: Sequence[float]) -> tuple[float, float]:
    """How far the least and the greatest sample lie from the median: (-0.1, 0.2) of it."""
    middle = statistics.median(samples)
    return min(samples) / middle - 1, max(samples) / middle - 1
