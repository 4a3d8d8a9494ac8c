"""Parametrizations that repeat one thing in many ways: a few run always, the rest with --full."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from common.paths import OURS, PATHS


def few(cases: Iterable[Any], *each_run: Any) -> list[Any]:
    """All of `cases`, for parametrize(); those but `each_run` are slow. A tuple is one case.

    A case that has `marks` (common.paths.DataPath) keeps them.
    """
    found = list(cases)
    missing = [case for case in each_run if case not in found]
    assert not missing, f"no such cases: {missing}"
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[
                *getattr(case, "marks", ()),
                *([] if case in each_run else [pytest.mark.slow]),
            ],
        )
        for case in found
    ]


def counts_over_paths(once: tuple[int, float], often: tuple[int, float]) -> list[Any]:
    """(path, count) for parametrize(), each with its count and the seconds that it may take.

    `once` over each path, as few() has it; `often` is slow, and a tenth of it in a virtual host,
    where all of it would take hours.
    """
    found = []
    for each in few(PATHS, *OURS):
        (path,) = each.values
        count, limit = once
        marks = [*each.marks, pytest.mark.timeout(limit * path.patience)]
        found.append(pytest.param(path, count, marks=marks, id=f"{path.name}-{count}"))
        count, limit = often
        if path.driver:
            count //= 10
        marks = [pytest.mark.slow, pytest.mark.timeout(limit * path.patience), *path.marks]
        found.append(pytest.param(path, count, marks=marks, id=f"{path.name}-{count}"))
    return found
