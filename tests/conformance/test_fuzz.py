"""What a peer may send, into every parser of it: libFuzzer's targets of tests/fuzz."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from artf_cli.errors import ArtfError
from common import fuzzers

# The first one waits until all are compiled.
pytestmark = pytest.mark.timeout(1800)

#: Of a target in each run: a second or two.
FEW = 50_000


@pytest.fixture(scope="module")
def built() -> Path:
    """By Debian's clang; where that cannot be had they skip with the reason, but in CI."""
    try:
        fuzzers.need_compiler()
    except ArtfError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    return fuzzers.build()


@pytest.mark.parametrize("target", fuzzers.TARGETS)
def test_hostile_bytes(built: Path, target: str, tmp_path: Path) -> None:
    assert fuzzers.give(built, target, FEW, seed=1, folder=tmp_path) == FEW


@pytest.mark.slow
@pytest.mark.parametrize("target", fuzzers.TARGETS)
def test_a_million_hostile_inputs(built: Path, target: str, tmp_path: Path) -> None:
    """Others in each run."""
    seed = int.from_bytes(os.urandom(3), "little") + 1
    print(f"seed {seed}")
    assert fuzzers.give(built, target, fuzzers.MANY, seed, tmp_path) == fuzzers.MANY


@pytest.mark.parametrize("target", fuzzers.TARGETS)
def test_every_target_has_a_corpus_and_a_source(target: str) -> None:
    assert all(fuzzers.corpus(target))
    sources = {path.name for path in fuzzers.FOLDER.glob("*_fuzz.cc")}
    assert sources == {f"{name}_fuzz.cc" for name in fuzzers.TARGETS}
