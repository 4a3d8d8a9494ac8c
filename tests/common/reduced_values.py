"""What tests/tf2/programs/multi_worker.py must have reduced, between two workers of any place."""

from __future__ import annotations

from typing import Any


def check_reduced(reduced: dict[str, Any]) -> None:
    """Its sums, means and gathers of values that differ by worker."""
    assert reduced.pop("reduce sum") == [3.0, 20.0]
    assert reduced.pop("reduce mean") == [1.5, 10.0]
    assert reduced.pop("broadcast") == 7.0
    for name, (wrong, gathered) in reduced.items():
        wanted = [0, 100] if name.endswith(" x 1") else [0, 1, 100, 101]
        assert (wrong, gathered) == (0, wanted), name
