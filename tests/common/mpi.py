"""The MPIs that tests run with, each with its own mpirun, installed where they are missing."""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from artf_cli import bootstrap, system
from artf_cli.errors import ArtfError

#: As ar_grpc::mpi::Flavour counts them.
STANDARD, OPEN_MPI, MPICH = range(3)
#: What the library in use is named by; without it the launcher's environment decides.
LIBRARY = "AR_MPI_LIB"
#: Root, and more ranks than cores.
_OPEN_MPI = ("--allow-run-as-root", "--oversubscribe")
#: What tests/mpi/channel_program.cc has a folder by, where each rank writes what it says.
_OUTPUT = "MPI_TEST_OUTPUT"


@dataclass(frozen=True)
class Mpi:
    """A library and the launcher that belongs to it."""

    name: str
    flavour: int
    #: What the library says of itself begins so: of Debian's the family, of a locked one all.
    version: str
    #: Debian's package and its launcher, or the locked requirements that have both.
    package: str = ""
    launcher: str = "mpirun"
    requirements: str = ""
    #: The library in the environment of the requirements.
    library: str = ""
    options: tuple[str, ...] = ()
    #: What keeps a job going when a rank has died.
    survive: tuple[str, ...] = ()
    survive_env: dict[str, str] = field(default_factory=dict)


_HYDRA = ("-disable-auto-cleanup",)
#: UCX ends a process when it reads the memory of one that has died.
_NO_CMA = {"UCX_TLS": "^cma"}
_RECOVERY = ("--enable-recovery",)
ALL = {
    each.name: each
    for each in (
        Mpi(
            "debian-mpich",
            MPICH,
            "MPICH Version:",
            package="mpich",
            launcher="mpirun.mpich",
            survive=_HYDRA,
            survive_env=_NO_CMA,
        ),
        Mpi(
            "debian-openmpi",
            OPEN_MPI,
            "Open MPI v",
            package="openmpi-bin",
            launcher="mpirun.openmpi",
            options=_OPEN_MPI,
            survive=_RECOVERY,
        ),
        Mpi(
            "mpich-5-standard",
            STANDARD,
            "MPICH Version:      5.0.2",
            requirements="mpich",
            library="libmpi_abi.so.1",
            survive=_HYDRA,
            survive_env=_NO_CMA,
        ),
        Mpi(
            "mpich-5",
            MPICH,
            "MPICH Version:      5.0.2",
            requirements="mpich",
            library="libmpi.so.12",
            survive=_HYDRA,
            survive_env=_NO_CMA,
        ),
        Mpi(
            "openmpi-5",
            OPEN_MPI,
            "Open MPI v5.0.11",
            requirements="openmpi",
            library="libmpi.so.40",
            options=_OPEN_MPI,
            survive=_RECOVERY,
        ),
    )
}


@functools.cache
def _prefix(requirements: str) -> Path:
    """The environment that has an MPI of the package index."""
    try:
        return bootstrap.environment(requirements).parents[1]
    except SystemExit:
        raise ArtfError(
            f"the package {requirements} could not be installed", "see the message above"
        ) from None


@functools.cache
def _why_not(name: str) -> str:
    """Installs an MPI; empty, or why it cannot be had."""
    mpi = ALL[name]
    try:
        if mpi.requirements:
            _prefix(mpi.requirements)
        elif system.missing({mpi.launcher: mpi.package}):
            system.apt_install(f"an MPI to test with ({mpi.launcher})", [mpi.package])
    except ArtfError as error:
        return str(error)
    return ""


def need(name: str) -> Mpi:
    """An MPI that is there; else the test skips with the reason, and in CI it fails."""
    why = _why_not(name)
    if why and os.environ.get("CI") == "true":
        pytest.fail(why)
    if why:
        pytest.skip(why)
    return ALL[name]


def library(mpi: Mpi) -> Path:
    """The file of an MPI of the package index."""
    return _prefix(mpi.requirements) / "lib" / mpi.library


def headers(mpi: Mpi) -> Path:
    """The folder with its mpi.h."""
    return _prefix(mpi.requirements) / "include"


def environment(**settings: str) -> dict[str, str]:
    """This process's, without what a launcher or a user has said of MPI."""
    prefixes = ("OMPI_", "PMIX_", "PMI_", "HYDI_", "PALS_", "UCX_", LIBRARY)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return {**kept, **settings}


def command(mpi: Mpi, ranks: int, *words: str | Path, survive: bool = False) -> list[str]:
    """What starts a program as so many ranks; with `survive` the job outlives one of them."""
    launcher: str | Path = mpi.launcher
    if mpi.requirements:
        launcher = _prefix(mpi.requirements) / "bin" / mpi.launcher
    options = [*mpi.options, *(mpi.survive if survive else ())]
    return [str(launcher), *options, "-np", str(ranks), *map(str, words)]


def run(
    mpi: Mpi,
    ranks: int,
    *words: str | Path,
    survive: bool = False,
    seconds: float = 120,
    **settings: str,
) -> subprocess.CompletedProcess[str]:
    """Runs channel_program as a job of so many ranks; standard output is what all of them say."""
    named = {LIBRARY: str(library(mpi))} if mpi.library else {}
    named.update(mpi.survive_env if survive else {})
    with tempfile.TemporaryDirectory(prefix="artf-mpi-") as folder:
        done = subprocess.run(
            command(mpi, ranks, *words, survive=survive),
            env=environment(**{**named, _OUTPUT: folder, **settings}),
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
