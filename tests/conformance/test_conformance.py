"""The fabrics: one suite of C++ over each of them, plain and under the sanitizers."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from common.cpp import REPO, VARIANTS, compiler

FABRIC = REPO / "third_party/ar_grpc/fabric"
PROGRAMS = ["parts_test", "fabric_conformance_test", "shm_test"]


def compile_all(variant: str, sources: list[Path], into: Path) -> list[Path]:
    objects = [into / f"{source.stem}.o" for source in sources]

    def compile_one(source: Path, to: Path) -> None:
        command = [*compiler(variant), "-c", str(source), "-o", str(to)]
        subprocess.run(command, check=True)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(compile_one, sources, objects))
    return objects


@pytest.fixture(scope="module", params=VARIANTS)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs lie, of one variant."""
    variant = str(request.param)
    into = tmp_path_factory.mktemp("conformance")
    tests = [REPO / "tests/conformance" / f"{name}.cc" for name in PROGRAMS]
    objects = compile_all(variant, [*tests, *sorted(FABRIC.glob("*.cc"))], into)
    for name, test in zip(PROGRAMS, objects):
        linked = [test, *objects[len(PROGRAMS) :]]
        command = [*compiler(variant), *map(str, linked), "-o", str(into / name)]
        subprocess.run(command, check=True)
    return into


@pytest.mark.parametrize("name", PROGRAMS)
def test_conformance(built: Path, name: str) -> None:
    done = subprocess.run([str(built / name)], capture_output=True, text=True, timeout=100)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok " in done.stdout


def test_fabrics_know_nothing_above_them() -> None:
    """Neither gRPC nor TensorFlow nor absl, and of this project only the layer itself."""
    for source in [*FABRIC.glob("*.h"), *FABRIC.glob("*.cc")]:
        for line in source.read_text().splitlines():
            if line.startswith('#include "'):
                assert line.startswith('#include "third_party/ar_grpc/fabric/'), f"{source}: {line}"
            assert not line.startswith(("#include <grpc", "#include <absl")), f"{source}: {line}"
