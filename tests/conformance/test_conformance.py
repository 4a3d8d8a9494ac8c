"""The fabrics: one suite of C++ over each of them, under the sanitizers, and with --full plain."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from common import cpp
from common.lacking import cannot_be_had
from common.repeated import few

# The first one of a variant waits until all of it is compiled.
pytestmark = pytest.mark.timeout(1800)


#: What each program says of how many cases it ran, so that none is lost.
CASES = {
    "base_test": ["14 cases over base"],
    "parts_test": ["8 cases over parts"],
    "fabric_conformance_test": [
        "44 cases over loopback",
        "43 cases over shm",
        "44 cases over hostile",
    ],
    "shm_test": ["46 cases over shm"],
}


@functools.cache
def built(variant: str) -> Path:
    return cpp.build("conformance", cpp.CONFORMANCE, [variant])


@pytest.mark.parametrize("variant", few(cpp.VARIANTS, *cpp.SANITIZED))
@pytest.mark.parametrize("name", cpp.CONFORMANCE)
def test_conformance(name: str, variant: str) -> None:
    said = cpp.run(built(variant), variant, f"tests/conformance/{name}", 300)
    print(said)
    assert re.findall(r"^\d+ cases over .*$", said, re.MULTILINE) == CASES[name]
    left_out = re.findall(r"^left out: .*$", said, re.MULTILINE)
    if left_out:
        # All cases but these passed.
        cannot_be_had("; ".join(left_out))


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
