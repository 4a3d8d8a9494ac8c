"""The fabrics: one suite of C++ over each of them, plain and under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from common import cpp

# The first one waits until all are compiled.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def built() -> Path:
    return cpp.build("conformance", cpp.CONFORMANCE)


@pytest.mark.parametrize("variant", cpp.VARIANTS)
@pytest.mark.parametrize("name", cpp.CONFORMANCE)
def test_conformance(built: Path, name: str, variant: str) -> None:
    said = cpp.run(built, variant, f"tests/conformance/{name}", 100)
    print(said)
    assert "ok " in said


def test_fabrics_know_nothing_above_them() -> None:
    """Neither gRPC nor TensorFlow nor absl, and of this project only the layer itself."""
    for source in [*cpp.FABRIC.glob("*.h"), *cpp.FABRIC.glob("*.cc")]:
        for line in source.read_text().splitlines():
            if line.startswith('#include "'):
                assert line.startswith('#include "third_party/ar_grpc/fabric/'), f"{source}: {line}"
            assert not line.startswith(("#include <grpc", "#include <absl")), f"{source}: {line}"
