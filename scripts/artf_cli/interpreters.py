"""The Python interpreters of this machine that the wheels are for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from artf_cli.errors import ArtfError

VERSIONS = ("3.9", "3.10", "3.11")
# Without the current folder, whose modules may have these names.
_SAY = (
    "import sys; sys.path = [each for each in sys.path if each]; import venv, ensurepip; "
    "print('%d.%d' % sys.version_info[:2])"
)


def _runs(path: Path, version: str) -> bool:
    """A shim on PATH may be there and not run, so it is asked."""
    try:
        said = subprocess.run([str(path), "-c", _SAY], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return said.stdout.strip() == version


def _candidates(version: str) -> list[Path]:
    found = [Path(sys.base_prefix) / "bin" / f"python{version}"]
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        name = shutil.which(f"python{version}", path=folder)
        if name:
            found.append(Path(name))
    # pyenv has a folder for each version; only the chosen ones have a shim that runs.
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found += sorted(root.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)
    return found


def find() -> dict[str, Path]:
    """Tag (`cp311`) → interpreter, for each Python of ours that runs and can make a venv."""
    result: dict[str, Path] = {}
    for version in VERSIONS:
        for path in _candidates(version):
            if path.exists() and _runs(path, version):
                result[f"cp{version.replace('.', '')}"] = path
                break
    return result


def need(tag: str) -> Path:
    """The interpreter for a wheel's tag; an ArtfError says that there is none."""
    found = find()
    if tag not in found:
        version = f"3.{tag[3:]}"
        raise ArtfError(
            f"no Python {version} with venv here",
            "put one of a module, conda or pyenv on PATH, or choose another by --python",
        )
    return found[tag]
