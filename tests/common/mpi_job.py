"""An MPI job whose ranks run what a test starts: servers one by one, and programs beside them."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import mpi_rank

from common.lacking import cannot_be_had

_ARTF = Path(__file__).parents[2] / "scripts/artf"
_END_S = 10.0
#: The folder of a job, for programs that start servers of their own.
FOLDER = "ARTF_MPI_JOB"


@functools.cache
def _shown(name: str, ranks: int, survive: bool, *words: str) -> dict[str, Any]:
    """What `artf mpi --show` says; the MPI is there then."""
    options = ["--with", name, "-np", str(ranks), *(["--survive"] if survive else [])]
    # artf finds its own modules.
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(_ARTF), "mpi", *options, "--show", "--", *words],
        env=env,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        cannot_be_had(f"{name}: {done.stderr.strip()}")
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def library(name: str) -> str:
    """The library of an MPI: its path, or of Debian's its name."""
    return str(_shown(name, 1, False, "true")["library"])


@functools.cache
def counting_library(name: str) -> Path:
    """A library that counts what goes through an MPI, by MPI's profiling interface, and is used in
    its place (count_mpi.cc). It stays for the life of this process."""
    compiler = shutil.which("g++")
    assert compiler, "no g++: scripts/artf build installs it, or says how"
    real = Path(library(name))
    folder = Path(tempfile.mkdtemp(prefix="artf-count-mpi-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = folder / f"count_{name.replace('-', '_')}.so"
    words = [compiler, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    words += [str(Path(__file__).with_name("count_mpi.cc")), "-o", str(made)]
    if real.is_absolute():
        words += [str(real), f"-Wl,-rpath,{real.parent}"]
    else:
        words.append(f"-l:{real}")
    subprocess.run([*words, "-Wl,--no-as-needed"], check=True)
    return made


def _end(launcher: subprocess.Popen[Any]) -> None:
    """Ends a job; a launcher that is killed at once may leave its ranks behind."""
    for end in (launcher.terminate, launcher.kill):
        if launcher.poll() is None:
            end()
            with suppress(subprocess.TimeoutExpired):
                launcher.wait(_END_S)


def mpirun(
    name: str,
    ranks: int,
    *words: str | Path,
    folder: Path,
    seconds: float,
    env: Mapping[str, str] | None = None,
) -> list[str]:
    """The lines that a program writes which the launcher itself starts as all ranks, in `folder`.

    As a user does it: nothing of the tests stands between, and no library of theirs counts. The
    launcher has to end within so many seconds, with status 0.
    """
    shown = _shown(name, ranks, False, *map(str, words))
    settings = {**shown["environment"], **(env or {})}
    with (folder / "stdout").open("w+") as stdout, (folder / "stderr").open("w+") as stderr:
        launcher = subprocess.Popen(
            shown["command"],
            cwd=folder,
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
        )
        try:
            status: int | None = launcher.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(launcher)
    said, told = ((folder / stream).read_text(errors="replace") for stream in ("stdout", "stderr"))
    ended = f"no end in {seconds:g} s" if status is None else f"status {status}"
    assert status == 0, f"{ended}\n{said}\n{told}"
    return said.splitlines()


class Job:
    """`ranks` seats of one MPI job; it outlives a rank that dies unless `survive` is False."""

    def __init__(
        self,
        name: str,
        ranks: int,
        env: Mapping[str, str] | None = None,
        survive: bool = True,
        counted: bool = True,
    ) -> None:
        self.name = name
        self.folder = Path(tempfile.mkdtemp(prefix="artf-mpi-"))
        seat = [sys.executable, "-E", "-s", mpi_rank.__file__, "seat"]
        shown = _shown(name, ranks, survive, *seat)
        words = [*shown["command"], str(self.folder)]
        settings = {**shown["environment"], FOLDER: str(self.folder), **(env or {})}
        if counted:
            settings |= {
                "AR_MPI_LIB": str(counting_library(name)),
                "ARTF_MPI_COUNTS": str(self.folder),
            }
        with (self.folder / "launcher").open("wb") as log:
            self._launcher = subprocess.Popen(
                words,
                env={**os.environ, **settings},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def settings(self) -> dict[str, str]:
        """What lets a program run its own servers in this job."""
        return {FOLDER: str(self.folder)}

    def said(self) -> str:
        """What the launcher wrote."""
        return (self.folder / "launcher").read_text(errors="replace")

    def wait(self, seconds: float) -> int:
        """The launcher's exit status, once all ranks have ended."""
        return self._launcher.wait(seconds)

    def close(self) -> None:
        _end(self._launcher)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def as_rank(folder: Path | str, command: list[str]) -> list[str]:
    """What runs a command as a free rank of the job in `folder`."""
    return [sys.executable, "-E", "-s", mpi_rank.__file__, "run", str(folder), *command]
