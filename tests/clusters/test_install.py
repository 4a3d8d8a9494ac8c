"""The commands of docs/clusters.md that install the wheel, as an ordinary user."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from artf_cli.paths import REPO
from common.page import PAGE
from common.slurm import USER

# Beside everything that TensorFlow needs it brings scikit-learn's packages.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: A module of the site's, which has a Python; the path is that one's folder.
MODULE = "#%Module1.0\nprepend-path PATH {}\n"


def test_install_without_root(wheel: Path, modules: Path) -> None:
    tag = wheel.name.split("-")[2]
    version = f"3.{tag[3:]}"
    interpreter = Path(f"/usr/bin/python{version}")
    if version != "3.11" or not interpreter.exists():
        pytest.skip(f"{interpreter} would be needed, the one that the page names")
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    # A folder of its own: pytest's let nobody else in, and keep 1.4 GB of a failure.
    with tempfile.TemporaryDirectory(prefix="artf-install-") as folder:
        Path(folder).chmod(0o755)
        install(Path(folder), wheel, version, interpreter, modules)


def install(folder: Path, wheel: Path, version: str, interpreter: Path, modules: Path) -> None:
    """As USER, in `folder`, from a checkout that has this wheel."""
    work, scratch, site = (folder / name for name in ("work", "scratch", "site"))
    for each in (work / "dist", scratch, site / "python"):
        each.mkdir(parents=True)
    shutil.copy(wheel, work / "dist")
    shutil.copytree(REPO / "scripts/clusters", work / "scripts/clusters")
    (site / "python" / version).write_text(MODULE.format(interpreter.parent))
    shutil.chown(scratch, USER)
    own = {"HOME": str(scratch), "SCRATCH": str(scratch), "MODULEPATH": str(site)}
    become = ["setpriv", f"--reuid={USER}", "--regid=nogroup", "--clear-groups"]
    commands = f"source {modules}\n{PAGE['Install']}"
    done = subprocess.run(
        [*become, "bash", "-euc", commands],
        env={**os.environ, **own},
        cwd=work,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    code = "import sklearn, tensorflow as tf; print(tf.__version__)"
    python = scratch / "ar-tensorflow" / "bin" / "python"
    said = subprocess.run(
        [*become, str(python), "-c", code],
        env={**os.environ, **own},
        cwd=scratch,
        capture_output=True,
        text=True,
    )
    assert said.stdout.strip() == "2.14.1", said.stderr
    assert (scratch / "clusters" / "digits.sbatch").exists()
