"""The fabrics: one suite of C++ over each of them, under the sanitizers, and with --full plain."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from common import cpp
from common.repeated import few

# The first one of a variant waits until all of it is compiled.
pytestmark = pytest.mark.timeout(1800)


@functools.cache
def built(variant: str) -> Path:
    return cpp.build("conformance", cpp.CONFORMANCE, [variant])


@pytest.mark.parametrize("variant", few(cpp.VARIANTS, *cpp.SANITIZED))
@pytest.mark.parametrize("name", cpp.CONFORMANCE)
def test_conformance(name: str, variant: str) -> None:
    said = cpp.run(built(variant), variant, f"tests/conformance/{name}", 300)
    print(said)
    assert "ok " in said


#: What the files of a layer may include of this project; none knows gRPC, TensorFlow or absl.
BELOW = {
    "base": ("base",),
    "memory": ("base", "memory"),
    "fabric": ("base", "memory", "fabric"),
    "protocol": ("base", "memory", "fabric", "protocol"),
}


@pytest.mark.parametrize("layer", BELOW)
def test_layers_know_nothing_above_them(layer: str) -> None:
    sources = [path for path in (cpp.LAYERS / layer).rglob("*") if path.suffix in (".h", ".cc")]
    assert sources
    allowed = tuple(f'#include "third_party/ar_grpc/{below}/' for below in BELOW[layer])
    for source in sources:
        for line in source.read_text().splitlines():
            if line.startswith('#include "'):
                assert line.startswith(allowed), f"{source}: {line}"
            assert not line.startswith(("#include <grpc", "#include <absl")), f"{source}: {line}"
