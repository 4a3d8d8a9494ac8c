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


def _have_venv() -> bool:
    probe = subprocess.run([sys.executable, "-c", "import ensurepip, venv"], capture_output=True)
    return probe.returncode == 0


def _need_venv() -> None:
    """Debian's python3 comes without ensurepip: install it when root, else say the command."""
    if _have_venv():
        return
    packages = ["python3-venv", "python3-pip"]
    cure = f"as root run: apt-get install -y {' '.join(packages)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        # All that a build needs in one command, since what else is missing shows only later.
        listed = (REQUIREMENTS / "debian.txt").read_text().splitlines()
        every = [line for line in listed if not line.startswith("#")]
        cure = f"as root run: apt-get update && apt-get install -y {' '.join(every)}"
        fail("python3 has no venv module", cure)
    sys.stderr.write("artf: python3 has no venv module; installing python3-venv\n")
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *packages]):
        if subprocess.run(command, stdout=sys.stderr).returncode != 0:
            fail(f"'{' '.join(command)}' failed", cure)
    if not _have_venv():
        fail(f"{sys.executable} has no venv module", cure)


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
        _need_venv()
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
    if sys.version_info < (3, 9):
        fail(f"Python {sys.version.split()[0]} is too old", "use Python 3.9 or newer")
    python = environment("tools")
    path = os.pathsep.join(p for p in (str(SCRIPTS), os.environ.get("PYTHONPATH", "")) if p)
    os.environ.update(PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1")
    os.execv(python, [str(python), "-m", "artf_cli", *sys.argv[1:]])


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
