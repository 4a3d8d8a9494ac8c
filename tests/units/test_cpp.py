"""C++ that runs without TensorFlow, under the sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
SANITIZERS = {
    "plain": [],
    "asan+ubsan": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "tsan": ["-fsanitize=thread"],
}


# Test program → what it is linked with, below third_party/ar_grpc.
PROGRAMS = {
    "block_cache_test": ["grpc/block_cache.cc"],
    "extent_allocator_test": ["protocol/extent_allocator.cc"],
    "protocol_test": [
        *(f"protocol/{name}.cc" for name in ("chunks", "cost_model", "hello", "measure", "peers")),
        *(f"fabric/{name}.cc" for name in ("loopback", "os", "reactor", "ring", "ring_connection")),
    ],
    "unique_id_test": ["tensorflow/unique_id.cc"],
}


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_cpp(name: str, sanitizer: str, tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    assert compiler, "no g++: scripts/artf build installs it, or says how"
    program = tmp_path / name
    layers = REPO / "third_party/ar_grpc"
    sources = [REPO / "tests/units" / f"{name}.cc"]
    sources += [source for files in PROGRAMS[name] for source in sorted(layers.glob(files))]
    command = [compiler, "-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{REPO}"]
    command += [*SANITIZERS[sanitizer], *map(str, sources), "-o", str(program), "-pthread"]
    subprocess.run(command, check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
