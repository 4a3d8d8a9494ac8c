"""A fresh virtual environment with the wheel in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from artf_cli import interpreters, pins
from artf_cli.errors import ArtfError
from artf_cli.paths import REQUIREMENTS, cache_dir

#: Environments of one kind that stay in the cache, each 1.4 GB: the last used ones.
KEPT = 3


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

    It lies in the cache under the wheel's hash and is made again when either changed, and then the
    ones that were used longest ago go. `pip check` must be clean. Raises ArtfError; a half-made
    environment is removed.
    """
    lock = REQUIREMENTS / f"{requirements}.txt"
    key = f"{pins.sha256_of(wheel)[:12]}-{pins.sha256_of(lock)[:8]}"
    root = cache_dir() / "venvs" / f"{requirements}-{key}"
    python = root / "bin" / "python"
    with suppress(FileNotFoundError):
        # Never makes the mark, as touch would: another artf may be removing the rest right now.
        os.utime(root / "READY")
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
    sweep(root.parent, requirements)
    return python


def sweep(folder: Path, requirements: str) -> None:
    """Removes the environments of one kind from `folder`, but for the KEPT last used ones."""
    name = re.compile(rf"{re.escape(requirements)}-[0-9a-f]{{12}}-[0-9a-f]{{8}}")
    marks = [root / "READY" for root in folder.iterdir() if name.fullmatch(root.name)]
    used: list[tuple[float, Path]] = []
    for mark in marks:
        # None of an unfinished one, and another artf may sweep at the same time.
        with suppress(FileNotFoundError):
            used.append((mark.stat().st_mtime, mark))
    for _, mark in sorted(used)[:-KEPT]:
        # First: half an environment must not be taken for a whole one.
        mark.unlink(missing_ok=True)
        shutil.rmtree(mark.parent, ignore_errors=True)
