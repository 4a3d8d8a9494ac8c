"""What shared libraries define and want."""

from __future__ import annotations

import subprocess
from pathlib import Path


def symbols(path: Path, *, defined: bool) -> dict[str, str]:
    """Name → nm's letter for its type, of the dynamic symbols that `path` defines or wants."""
    which = "--defined-only" if defined else "--undefined-only"
    # A second for TensorFlow's 200,000, over which pyelftools takes a minute.
    command = ["nm", "--dynamic", which, "--format=posix", "--without-symbol-versions", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = (line.split() for line in done.stdout.splitlines())
    return {name: letter for name, letter, *_ in lines}
