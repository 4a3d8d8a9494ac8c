"""Jobs of tests/mpi/channel_program.cc, under the mpirun of each MPI."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

from artf_cli import mpis
from artf_cli.errors import ArtfError
from artf_cli.mpis import Mpi
from common.lacking import cannot_be_had

#: What the program has a folder by, where each rank writes what it says.
_OUTPUT = "MPI_TEST_OUTPUT"


@functools.cache
def _why_not(name: str) -> str:
    """Installs an MPI; empty, or why it cannot be had."""
    try:
        mpis.ensure(name)
    except ArtfError as error:
        return str(error)
    return ""


def need(name: str) -> Mpi:
    """An MPI that is there; else the test skips with the reason, and in CI it fails."""
    why = _why_not(name)
    if why:
        cannot_be_had(why)
    return mpis.ALL[name]


def run(
    mpi: Mpi,
    ranks: int,
    *words: str | Path,
    survive: bool = False,
    seconds: float = 120,
    **settings: str,
) -> subprocess.CompletedProcess[str]:
    """Runs channel_program as a job of so many ranks; standard output is what all of them say."""
    named = mpis.settings(mpi, survive)
    with tempfile.TemporaryDirectory(prefix="artf-mpi-") as folder:
        done = subprocess.run(
            mpis.command(mpi, ranks, *words, survive=survive),
            env=mpis.environment(**{**named, _OUTPUT: folder, **settings}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        print(done.stdout, done.stderr)
        done.stdout = "".join(path.read_text() for path in sorted(Path(folder).iterdir()))
    print(done.stdout)
    return done


def said(output: str, word: str) -> list[str]:
    """What stands behind a word, in each line that begins with it."""
    start = f"{word} "
    return [line[len(start) :] for line in output.splitlines() if line.startswith(start)]
