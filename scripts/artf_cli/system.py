"""System packages: installed when this is root on a Debian, else asked for by exact command."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from artf_cli.console import note
from artf_cli.errors import ArtfError

# Program or header → the Debian package that has it.
BUILD_NEEDS = {
    "g++": "g++",
    "git": "git",
    "protoc": "protobuf-compiler",
    "/usr/include/google/protobuf/compiler/plugin.h": "libprotoc-dev",
}


def missing(needs: dict[str, str]) -> list[str]:
    """The packages of those `needs` (programs on PATH, or absolute paths) that are not there."""
    return [
        package
        for name, package in needs.items()
        if not (Path(name).exists() if name.startswith("/") else shutil.which(name))
    ]


def apt_install(what: str, packages: Sequence[str]) -> None:
    """Installs Debian packages as root; else an ArtfError with the command that root must run."""
    command = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    cure = f"as root run: apt-get update && {' '.join(command)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ArtfError(f"{what} is missing", cure)
    note(f"{what} is missing; installing {', '.join(packages)}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Java's packages fail without this folder, which slim images lack.
    Path("/usr/share/man/man1").mkdir(parents=True, exist_ok=True)
    for step in (["apt-get", "update", "-qq"], command):
        done = subprocess.run(step, env=env, capture_output=True, text=True)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ArtfError(f"{' '.join(step)} failed: {last}", cure)


def ensure_build_tools(more: Sequence[str] = ()) -> None:
    """A compiler, git, protoc and its headers; and `more` packages, so that it is one command."""
    packages = [*missing(BUILD_NEEDS), *more]
    if packages:
        apt_install("part of the build tools", packages)
