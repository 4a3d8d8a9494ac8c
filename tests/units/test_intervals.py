"""Ratios of paired rounds, their intervals and the spread."""

from __future__ import annotations

import random

import pytest

from artf_cli.bench.intervals import LEAST_ROUNDS, compare, spread


def test_the_ratio_is_the_median_of_the_rounds_ratios() -> None:
    assert compare([10, 100, 20], [5, 4, 90]).ratio == 2.0


def test_too_few_rounds_have_no_interval() -> None:
    one = [1.0] * LEAST_ROUNDS
    assert compare(one[1:], one[1:]).interval is None
    assert compare(one, one).interval == (1.0, 1.0)


@pytest.mark.parametrize(("rounds", "low", "high"), [(6, 1, 6), (8, 1, 8), (9, 2, 8), (15, 4, 12)])
def test_the_interval_ends_at_the_sign_tests_ranks(rounds: int, low: int, high: int) -> None:
    """The ranks of the usual tables of 95% intervals of a median."""
    over = [float(k) for k in range(1, rounds + 1)]
    random.Random(7).shuffle(over)
    assert compare(over, [1.0] * rounds).interval == (low, high)


def test_pairs_take_out_what_both_of_a_round_suffer() -> None:
    noise = [1.0, 9.0, 2.0, 5.0, 3.0, 8.0, 4.0]
    assert compare([2 * n for n in noise], noise) == (2.0, (2.0, 2.0))


def test_the_interval_holds_the_true_ratio_often_enough() -> None:
    draw = random.Random(1)
    held = 0
    for _ in range(2000):
        over = [2 * draw.lognormvariate(0, 0.3) for _ in range(9)]
        under = [draw.lognormvariate(0, 0.3) for _ in range(9)]
        ratio, interval = compare(over, under)
        assert interval is not None
        assert interval[0] <= ratio <= interval[1]
        held += interval[0] <= 2 <= interval[1]
    assert 0.95 <= held / 2000 <= 0.98  # the sign test's own chance with nine rounds is 0.961


def test_rounds_that_cannot_be_paired_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rounds cannot be paired with 3"):
        compare([1, 2], [1, 2, 3])


def test_the_spread_is_relative_to_the_median() -> None:
    assert spread([8, 10, 15]) == pytest.approx((-0.2, 0.5))
