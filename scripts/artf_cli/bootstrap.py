"""Makes the tool environment (standard library only), then runs the command line inside it.

The environment lies in the cache, under the hash of its lock file, so a changed lock makes a
new one. Every requirement is hash-locked; a half-made environment has no READY mark and is
made again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]
REQUIREMENTS = SCRIPTS.parent / "build" / "requirements"


def fail(what: str, cure: str) -> None:
    """Prints what failed and the cure on one line, and exits 1."""
    sys.stderr.write(f"artf: {what}; {cure}\n")
    raise SystemExit(1)


def cache_dir() -> Path:
    """As `artf_cli.paths.cache_dir`, which cannot be imported before the environment exists."""
    named = os.environ.get("ARTF_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    path = Path(named) if named else (Path(base) if base else Path.home() / ".cache") / "artf"
    return path.expanduser().resolve()


def environment(name: str) -> Path:
    """The Python of the environment made from `build/requirements/NAME.txt`, made if need be."""
    lock_file = REQUIREMENTS / f"{name}.txt"
    key = hashlib.sha256(
        lock_file.read_bytes() + f"{sys.version_info[:3]}{sys.executable}".encode()
    ).hexdigest()[:12]
    root = cache_dir() / "environments" / f"{name}-{key}"
    python = root / "bin" / "python"
    if (root / "READY").exists():
        return python
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        guard = (root.parent / f"{name}-{key}.lock").open("w")
    except OSError as error:
        fail(
            f"cannot write the cache {root.parent}: {error}", "set ARTF_CACHE to a folder of yours"
        )
    with guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if (root / "READY").exists():
            return python
        sys.stderr.write(f"artf: making the {name} environment (once)\n")
        shutil.rmtree(root, ignore_errors=True)
        make = [sys.executable, "-m", "venv", str(root)]
        install = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        # pip compiles them: nothing writes bytecode later, see main().
        install += ["--require-hashes", "-r", str(lock_file)]
        for command in (make, install):
            done = subprocess.run(command, stdout=sys.stderr)
            if done.returncode != 0:
                shutil.rmtree(root, ignore_errors=True)
                fail(
                    f"could not make the {name} environment from {lock_file.name}",
                    "see the message above; check the network, the disk and pip's configuration",
                )
        (root / "READY").touch()
    return python


def main() -> None:
    """Re-executes this command line inside the tool environment."""
    python = environment("tools")
    path = os.pathsep.join(p for p in (str(SCRIPTS), os.environ.get("PYTHONPATH", "")) if p)
    os.environ.update(PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1")
    os.execv(python, [str(python), "-m", "artf_cli", *sys.argv[1:]])


def start() -> None:
    """The entry, from start.py."""
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
