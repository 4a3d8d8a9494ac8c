"""C++ that runs without TensorFlow, under the sanitizers."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from common import cpp

# The first one of a variant waits until all of it is compiled.
pytestmark = pytest.mark.timeout(1800)

TSAN = "tsan"
#: Programs of one thread, of which ThreadSanitizer has nothing to say.
ONE_THREAD = {
    "handshake_orders_test",
    "handshake_test",
    "limits_test",
    "log_test",
    "mpi_messages_test",
    "rendezvous_messages_test",
    "verbs_messages_test",
}
#: The sanitized ones run the same cases; plain ones only do more rounds of the few that race.
CASES = [
    pytest.param(name, variant, marks=[pytest.mark.slow] if variant == cpp.PLAIN else [])
    for variant in cpp.VARIANTS
    for name in cpp.UNITS
    if variant != TSAN or name not in ONE_THREAD
]


@functools.cache
def built(variant: str) -> Path:
    names = [name for name, of in (each.values for each in CASES) if of == variant]
    return cpp.build("units", map(str, names), [variant])


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_cpp(name: str, variant: str) -> None:
    cpp.run(built(variant), variant, f"tests/units/{name}", 300)


def test_nothing_is_compiled_twice() -> None:
    """All is up to date, and what a source includes is known to ninja."""
    folder = built(TSAN)
    targets = [f"{TSAN}/tests/units/{name}" for name in cpp.UNITS if name not in ONE_THREAD]
    assert "no work to do" in cpp.ninja(folder, "-n", *targets)
    said = cpp.ninja(folder, "-t", "deps", f"{TSAN}/tests/units/node_test.cc.o")
    assert str(cpp.LAYERS / "protocol/hello.h") in said
