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


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_unique_id(sanitizer: str, tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    assert compiler, "no g++: scripts/artf build installs it, or says how"
    program = tmp_path / "unique_id_test"
    sources = ["tests/units/unique_id_test.cc", "third_party/ar_grpc/tensorflow/unique_id.cc"]
    command = [compiler, "-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{REPO}"]
    command += [*SANITIZERS[sanitizer], *(str(REPO / s) for s in sources), "-o", str(program)]
    subprocess.run([*command, "-pthread"], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
