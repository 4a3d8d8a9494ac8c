"""C++ that runs without TensorFlow, under the sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from common.cpp import REPO, VARIANTS, compiler

# Test program → what it is linked with, below third_party/ar_grpc.
PROGRAMS = {
    "block_cache_test": ["grpc/block_cache.cc"],
    "extent_allocator_test": ["protocol/extent_allocator.cc"],
    "protocol_test": [
        *(
            f"protocol/{name}.cc"
            for name in ("chunks", "cost_model", "hello", "landing", "measure", "peers")
        ),
        *(
            f"fabric/{name}.cc"
            for name in ("loopback", "os", "random", "reactor", "ring", "ring_connection")
        ),
    ],
    "unique_id_test": ["fabric/random.cc", "tensorflow/unique_id.cc"],
}


@pytest.mark.parametrize("sanitizer", VARIANTS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_cpp(name: str, sanitizer: str, tmp_path: Path) -> None:
    program = tmp_path / name
    layers = REPO / "third_party/ar_grpc"
    sources = [REPO / "tests/units" / f"{name}.cc"]
    sources += [source for files in PROGRAMS[name] for source in sorted(layers.glob(files))]
    command = [*compiler(sanitizer), *map(str, sources), "-o", str(program)]
    subprocess.run(command, check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
