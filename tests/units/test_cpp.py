"""C++ that runs without TensorFlow, under the sanitizers."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

import pytest

from common import cpp
from common.repeated import few

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


def names(variant: str) -> list[str]:
    """The programs that run in a variant."""
    return [name for name in cpp.UNITS if variant != TSAN or name not in ONE_THREAD]


def cases(variants: Iterable[str]) -> list[tuple[str, str]]:
    return [(name, variant) for variant in variants for name in names(variant)]


@functools.cache
def built(variant: str) -> Path:
    return cpp.build("units", names(variant), [variant])


# The sanitized ones run the same cases; plain ones only do more rounds of the few that race.
@pytest.mark.parametrize(("name", "variant"), few(cases(cpp.VARIANTS), *cases(cpp.SANITIZED)))
def test_cpp(name: str, variant: str) -> None:
    cpp.run(built(variant), variant, f"tests/units/{name}", 300)


def test_nothing_is_compiled_twice() -> None:
    """All is up to date, and what a source includes is known to ninja."""
    folder = built(TSAN)
    targets = [f"{TSAN}/tests/units/{name}" for name in names(TSAN)]
    assert "no work to do" in cpp.ninja(folder, "-n", *targets)
    said = cpp.ninja(folder, "-t", "deps", f"{TSAN}/tests/units/node_test.cc.o")
    assert str(cpp.LAYERS / "protocol/hello.h") in said
