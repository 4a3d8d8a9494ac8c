"""The MPIs that are known to work, each with its own mpirun, installed where they are missing.

`artf mpi` runs a program under one of them; tests and benchmarks start their jobs through it.
"""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import click

from artf_cli import bootstrap, system
from artf_cli.console import emit_json
from artf_cli.errors import ArtfError

#: As ar_grpc::mpi::Flavour counts them.
STANDARD, OPEN_MPI, MPICH = range(3)
#: What the library in use is named by; without it the launcher's environment decides.
LIBRARY = "AR_MPI_LIB"
#: Root, and more ranks than cores.
_OPEN_MPI = ("--allow-run-as-root", "--oversubscribe")


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
    #: What the library is called; of an MPI of the package index it is AR_MPI_LIB's.
    library: str = ""
    options: tuple[str, ...] = ()
    #: What keeps a job going when a rank has died.
    survive: tuple[str, ...] = ()
    survive_env: dict[str, str] = field(default_factory=dict)


_HYDRA = ("-disable-auto-cleanup",)
#: UCX ends a process when it reads the memory of one that has died.
_NO_CMA = {"UCX_TLS": "^cma"}
_RECOVERY = ("--enable-recovery",)
#: PRRTE, which starts Open MPI 5's ranks, tells a rank that ends with an error from one that dies.
_PRRTE_RECOVERY = (*_RECOVERY, "--runtime-options", "error-nonzero-status=false")
ALL = {
    each.name: each
    for each in (
        Mpi(
            "debian-mpich",
            MPICH,
            "MPICH Version:",
            package="mpich",
            launcher="mpirun.mpich",
            library="libmpich.so.12",
            survive=_HYDRA,
            survive_env=_NO_CMA,
        ),
        Mpi(
            "debian-openmpi",
            OPEN_MPI,
            "Open MPI v",
            package="openmpi-bin",
            launcher="mpirun.openmpi",
            library="libmpi.so.40",
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
            survive=_PRRTE_RECOVERY,
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


def ensure(name: str) -> Mpi:
    """An MPI that is there, installed if need be; ArtfError where it cannot be had."""
    mpi = ALL[name]
    if mpi.requirements:
        _prefix(mpi.requirements)
    elif system.missing({mpi.launcher: mpi.package}):
        system.apt_install(f"an MPI ({mpi.launcher})", [mpi.package])
    return mpi


def library(mpi: Mpi) -> Path:
    """The file of an MPI of the package index; the name of one of Debian's."""
    if not mpi.requirements:
        return Path(mpi.library)
    return _prefix(mpi.requirements) / "lib" / mpi.library


def headers(mpi: Mpi) -> Path:
    """The folder with the mpi.h of an MPI of the package index."""
    return _prefix(mpi.requirements) / "include"


def settings(mpi: Mpi, survive: bool = False) -> dict[str, str]:
    """What its jobs have in their environment."""
    named = {LIBRARY: str(library(mpi))} if mpi.requirements else {}
    return {**named, **(mpi.survive_env if survive else {})}


def environment(**chosen: str) -> dict[str, str]:
    """This process's, without what a launcher or a user has said of MPI."""
    prefixes = ("OMPI_", "PMIX_", "PMI_", "HYDI_", "PALS_", "UCX_", LIBRARY)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return {**kept, **chosen}


def command(mpi: Mpi, ranks: int, *words: str | Path, survive: bool = False) -> list[str]:
    """What starts a program as so many ranks; with `survive` the job outlives one of them."""
    launcher: str | Path = mpi.launcher
    if mpi.requirements:
        launcher = _prefix(mpi.requirements) / "bin" / mpi.launcher
    options = [*mpi.options, *(mpi.survive if survive else ())]
    return [str(launcher), *options, "-np", str(ranks), *map(str, words)]


@click.command(name="mpi")
@click.option(
    "--with",
    "name",
    type=click.Choice(tuple(ALL)),
    default="debian-mpich",
    show_default=True,
    help="The MPI and its mpirun; it is installed if need be.",
)
@click.option("-np", "--ranks", type=click.IntRange(1, 1024), required=True)
@click.option("--survive", is_flag=True, help="The job goes on when a rank has died.")
@click.option("--show", is_flag=True, help="Run nothing; print what would run, as JSON.")
@click.argument("words", nargs=-1, required=True, metavar="COMMAND")
def mpi_command(name: str, ranks: int, survive: bool, show: bool, words: tuple[str, ...]) -> None:
    """Runs COMMAND as the ranks of an MPI job on this machine.

    With what root, few cores and the library's place want to have said: what is printed by --show
    can be used without artf.
    """
    mpi = ensure(name)
    run = command(mpi, ranks, *words, survive=survive)
    env = settings(mpi, survive)
    if show:
        emit_json({"command": run, "environment": env, "library": str(library(mpi))})
        return
    sys.stdout.flush()
    os.execvpe(run[0], run, environment(**env))
