"""Libraries of one source that a test preloads into a program, or has it open."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def preloadable(source: Path, folder: Path, *flags: str) -> Path:
    """A library of one source, for LD_PRELOAD; compiled into `folder`, with more `flags`."""
    compiler = shutil.which("g++")
    assert compiler, "no g++: scripts/artf build installs it, or says how"
    library = folder / f"{source.stem}.so"
    command = [compiler, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*command, str(source), "-o", str(library), *flags, "-ldl"], check=True)
    return library
