"""C++ that runs without TensorFlow, under the sanitizers."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from common import cpp

# The first one of a variant waits until all of it is compiled.
pytestmark = pytest.mark.timeout(1800)

#: The sanitized ones run the same cases; plain ones only do more rounds of the few that race.
VARIANTS = [
    pytest.param(variant, marks=[pytest.mark.slow] if variant == cpp.PLAIN else [])
    for variant in cpp.VARIANTS
]


@functools.cache
def built(variant: str) -> Path:
    return cpp.build("units", cpp.UNITS, [variant])


@pytest.mark.parametrize("name", cpp.UNITS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_cpp(name: str, variant: str) -> None:
    cpp.run(built(variant), variant, f"tests/units/{name}", 300)


def test_nothing_is_compiled_twice() -> None:
    """All is up to date, and what a source includes is known to ninja."""
    folder = built("tsan")
    targets = [f"tsan/tests/units/{name}" for name in cpp.UNITS]
    assert "no work to do" in cpp.ninja(folder, "-n", *targets)
    said = cpp.ninja(folder, "-t", "deps", "tsan/tests/units/node_test.cc.o")
    assert str(cpp.LAYERS / "protocol/hello.h") in said
