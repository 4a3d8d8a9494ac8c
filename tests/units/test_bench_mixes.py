"""The recommender's mixes are the ones that are published: counts, sizes, bytes."""

from __future__ import annotations

import pytest

from artf_cli.bench.mixes import KIB, MIB, MIXES, spread
from artf_cli.paths import REPO


@pytest.mark.parametrize(
    ("name", "pulls", "pushes", "pulled", "pushed"),
    [
        ("empty", 0, 0, 0, 0),
        ("wide-deep", 57, 158, 15_220_736, 15_634_432),
        ("wide-ctr", 300, 320, 5_511_552, 819_200),
        ("multi-hot", 26, 26, 37_374_976, 37_374_976),
        ("fused", 2, 2, 17_825_792, 17_825_792),
    ],
)
def test_tensors_and_bytes(name: str, pulls: int, pushes: int, pulled: int, pushed: int) -> None:
    mix = MIXES[name]
    assert (len(mix.pulls), len(mix.pushes)) == (pulls, pushes)
    assert (mix.pulled_bytes, mix.pushed_bytes) == (pulled, pushed)
    assert mix.total_bytes == pulled + pushed
    # Updates are of the size of what they update; floats have 4 bytes, ids 8.
    assert mix.pushes == (*mix.pulls[: mix.updates], *mix.ids)
    assert not [size for size in mix.pulls if size % 4] + [size for size in mix.ids if size % 8]


def test_wide_and_deep_is_small_tensors_and_a_few_large_ones() -> None:
    mix = MIXES["wide-deep"]
    both = mix.pulls + mix.pushes
    assert both.count(4 * KIB) == 205
    assert len(both) == 215
    assert max(both) == 9 * MIB


def test_the_other_mixes_have_their_ranges() -> None:
    ctr, hot, fused = (MIXES[name] for name in ("wide-ctr", "multi-hot", "fused"))
    assert (min(ctr.pulls), max(ctr.pulls)) == (2 * KIB, 64 * KIB)
    assert (ctr.updates, set(ctr.ids)) == (0, {KIB, 2 * KIB, 3 * KIB, 4 * KIB})
    assert (min(hot.pulls), max(hot.pulls)) == (64 * KIB, 6 * MIB)
    assert fused.pushes == (MIB, 16 * MIB)


def test_the_page_says_what_each_moves() -> None:
    text = (REPO / "docs" / "measured.md").read_text()
    for name, mix in MIXES.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"- *{name}*")]
        assert not mix.pulls or line.endswith(f"; {mix.total_bytes / 1e6:.1f} MB.")


def test_a_spread_grows_by_one_factor_from_end_to_end() -> None:
    assert spread(1000, 8000, 4, 1) == (1000, 2000, 4000, 8000)
    assert spread(64, 256, 3, 64) == (64, 128, 256)
    assert list(MIXES["wide-ctr"].pulls) == sorted(MIXES["wide-ctr"].pulls)
