"""A fresh virtual environment with the wheel in it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from artf_cli import interpreters, pins
from artf_cli.errors import ArtfError
from artf_cli.paths import REQUIREMENTS, cache_dir


def _pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        said = (lines or done.stderr.strip().splitlines() or ["no message"])[0]
        raise ArtfError(
            f"pip {arguments[0]} failed: {said}", "check the network, the disk and pip's settings"
        )


def make(wheel: Path, requirements: str = "runtime") -> Path:
    """The Python of an environment with `wheel` and its locked requirements installed.

    It lies in the cache under the wheel's hash and is made again when either changed; `pip check`
    must be clean. Raises ArtfError; a half-made environment is removed.
    """
    lock = REQUIREMENTS / f"{requirements}.txt"
    key = f"{pins.sha256_of(wheel)[:12]}-{pins.sha256_of(lock)[:8]}"
    root = cache_dir() / "venvs" / f"{requirements}-{key}"
    python = root / "bin" / "python"
    if (root / "READY").exists():
        return python
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    interpreter = interpreters.need(wheel.name.split("-")[2])
    try:
        done = subprocess.run(
            [str(interpreter), "-m", "venv", str(root)], capture_output=True, text=True
        )
        if done.returncode != 0:
            raise ArtfError(f"{interpreter} cannot make {root}", "see: python3 -m venv --help")
        _pip(python, "install", "-qq", "--no-deps", "--require-hashes", "-r", str(lock))
        _pip(python, "install", "-qq", "--no-deps", str(wheel))
        _pip(python, "check")
    except BaseException:
        shutil.rmtree(root, ignore_errors=True)
        raise
    (root / "READY").touch()
    return python
