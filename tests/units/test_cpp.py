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


# Test program → what it is linked with.
PROGRAMS = {
    "block_cache_test": "third_party/ar_grpc/grpc/block_cache.cc",
    "unique_id_test": "third_party/ar_grpc/tensorflow/unique_id.cc",
}


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_cpp(name: str, sanitizer: str, tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    assert compiler, "no g++: scripts/artf build installs it, or says how"
    program = tmp_path / name
    sources = [REPO / "tests/units" / f"{name}.cc", REPO / PROGRAMS[name]]
    command = [compiler, "-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{REPO}"]
    command += [*SANITIZERS[sanitizer], *map(str, sources), "-o", str(program), "-pthread"]
    subprocess.run(command, check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
