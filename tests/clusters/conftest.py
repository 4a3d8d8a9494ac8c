"""A Slurm cluster whose nodes have the wheel installed, and the command `module`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from artf_cli import system, venv
from artf_cli.errors import ArtfError
from artf_cli.paths import REPO
from artf_cli.supervise import Group
from common import slurm as slurm_module
from common.lacking import cannot_be_had
from common.nodes import SCRATCH
from common.slurm import COMPUTE, USER, Slurm


@pytest.fixture(scope="session")
def wheel() -> Path:
    return Path(os.environ["ARTF_WHEEL"])


@pytest.fixture(scope="session")
def python(wheel: Path) -> Path:
    """The Python of an environment like the one that the page makes."""
    return venv.make(wheel)


def _prefix(python: Path) -> Path:
    """Where the interpreter that an environment was made with is installed."""
    command = [str(python), "-c", "import sys; print(sys.base_prefix)"]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


@pytest.fixture(scope="session")
def slurm(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A cluster with `$SCRATCH/ar-tensorflow` and `$SCRATCH/clusters`, as the page makes them."""
    slurm_module.need()
    folder = tmp_path_factory.mktemp("slurm")
    logs = folder / "logs"
    logs.mkdir()
    with Group(logs) as group:
        cluster = Slurm(group, folder, COMPUTE)
        copy = cluster.nodes.scratch / "clusters"
        shutil.copytree(REPO / "scripts/clusters", copy)
        for path in (copy, *copy.rglob("*")):
            shutil.chown(path, USER)
        (cluster.nodes.scratch / "ar-tensorflow").mkdir()
        for node in cluster.nodes.all:
            node.bind(python.parents[1], SCRATCH / "ar-tensorflow")
            node.expose(_prefix(python))
        yield cluster


@pytest.fixture(scope="session")
def modules() -> Path:
    """The file that gives a shell the command `module`."""
    start = Path("/usr/share/modules/init/bash")
    try:
        if not start.exists():
            system.apt_install("the command `module`", ["environment-modules"])
    except ArtfError as error:
        cannot_be_had(str(error))
    return start
