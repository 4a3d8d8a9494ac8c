"""Makes the tool environment (standard library only), then runs the command line inside it.

The environment lies in the cache, under the hash of its lock file, so a changed lock makes a
new one. Every requirement is hash-locked; a half-made environment has no READY mark and is
made again.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from artf_cli import package_index, uv
from artf_cli.package_index import FetchError

SCRIPTS = Path(__file__).resolve().parents[1]
REQUIREMENTS = SCRIPTS.parent / "build" / "requirements"


def fail(what: str, cure: str) -> None:
    """Prints what failed and the cure on one line, and exits 1."""
    uv.say(f"{what}; {cure}")
    raise SystemExit(1)


def environment(name: str) -> Path:
    """The Python of the environment made from `build/requirements/NAME.txt`, made if need be."""
    lock_file = REQUIREMENTS / f"{name}.txt"
    key = hashlib.sha256(
        lock_file.read_bytes() + f"{sys.version_info[:3]}{sys.executable}".encode()
    ).hexdigest()[:12]
    root = uv.cache_dir() / "environments" / f"{name}-{key}"
    python = root / "bin" / "python"
    if (root / "READY").exists():
        return python
    try:
        with uv.lock(root.with_name(f"{root.name}.lock"), f"makes the {name} environment") as held:
            if (root / "READY").exists():
                return python
            uv.say(f"making the {name} environment (once)")
            uv.make(Path(sys.executable), root, lock_file, held=held)
            (root / "READY").touch()
    except FetchError as error:
        fail(f"no {name} environment: {error.what}", error.cure)
    return python


def main() -> None:
    """Re-executes this command line inside the tool environment."""
    python = environment("tools")
    path = os.pathsep.join(p for p in (str(SCRIPTS), os.environ.get("PYTHONPATH", "")) if p)
    os.environ.update(PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1")
    # That of this Python goes on for what is made by the other one.
    os.environ.setdefault(package_index.PREFIX, sys.prefix)
    os.execv(python, [str(python), "-m", "artf_cli", *sys.argv[1:]])


def start() -> None:
    """The entry, from start.py."""
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
