"""Parametrizations that repeat one thing in many ways: a few run always, the rest with --full."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few(cases: Iterable[Any], *each_run: Any) -> list[Any]:
    """All of `cases`, for parametrize(); those but `each_run` are slow. A tuple is one case."""
    found = list(cases)
    missing = [case for case in each_run if case not in found]
    assert not missing, f"no such cases: {missing}"
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[] if case in each_run else [pytest.mark.slow],
        )
        for case in found
    ]
