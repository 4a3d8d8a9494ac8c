"""C++ that runs without TensorFlow, under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from common import cpp

# The first one waits until all are compiled.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def built() -> Path:
    return cpp.build("units", cpp.UNITS)


@pytest.mark.parametrize("variant", cpp.VARIANTS)
@pytest.mark.parametrize("name", cpp.UNITS)
def test_cpp(built: Path, name: str, variant: str) -> None:
    cpp.run(built, variant, f"tests/units/{name}", 300)


def test_nothing_is_compiled_twice(built: Path) -> None:
    """All is up to date, and what a source includes is known to ninja."""
    targets = [f"plain/tests/units/{name}" for name in cpp.UNITS]
    assert "no work to do" in cpp.ninja(built, "-n", *targets)
    said = cpp.ninja(built, "-t", "deps", "tsan/tests/units/node_test.cc.o")
    assert str(cpp.LAYERS / "protocol/hello.h") in said
