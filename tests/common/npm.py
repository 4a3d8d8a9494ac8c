"""Programs that no Python package has, from the index that npm knows."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
from pathlib import Path

from common.lacking import cannot_be_had


def program(package: str, name: str, sha256: str, folder: Path) -> Path:
    """The program `name` of `package`, as in "@bazel/buildifier@8.2.1", put into `folder`."""
    npm = shutil.which("npm")
    if npm is None:
        cannot_be_had(f"no npm, whose index has {package}")
    command = [npm, "pack", "--silent", package]
    packed = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if packed.returncode != 0:
        cannot_be_had(f"npm brings no {package}: {packed.stderr.strip()[-300:]}")
    with tarfile.open(folder / packed.stdout.split()[-1]) as archive:
        stream = archive.extractfile(f"package/{name}")
        assert stream is not None
        content = stream.read()
    assert hashlib.sha256(content).hexdigest() == sha256
    path = folder / name
    path.write_bytes(content)
    path.chmod(0o755)
    return path
