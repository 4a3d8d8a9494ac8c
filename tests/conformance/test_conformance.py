"""The fabrics: one suite of C++ over each of them, plain and under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from common import cpp

# The first one waits until all are compiled.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def built() -> Path:
    return cpp.build("conformance", cpp.CONFORMANCE)


@pytest.mark.parametrize("variant", cpp.VARIANTS)
@pytest.mark.parametrize("name", cpp.CONFORMANCE)
def test_conformance(built: Path, name: str, variant: str) -> None:
    said = cpp.run(built, variant, f"tests/conformance/{name}", 300)
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
