"""A fresh virtual environment with the wheel in it."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from artf_cli import interpreters, pins, uv
from artf_cli.console import note
from artf_cli.errors import ArtfError
from artf_cli.package_index import FetchError
from artf_cli.paths import REQUIREMENTS, cache_dir

#: What an environment has unless other requirements are named, which contain these.
RUNTIME = "runtime"
#: Environments of one kind that stay in the cache, of RUNTIME each 1.4 GB: the last used ones.
KEPT = 3

# The locks of the environments that this process uses, held until it ends.
_in_use: dict[Path, TextIO] = {}


def make(wheel: Path, requirements: str = RUNTIME) -> Path:
    """The Python of an environment with `wheel` and its locked requirements installed.

    It lies in the cache under the wheel's hash and is made again when either changed, and then the
    ones that were used longest ago go. One artf makes it while others wait; none removes it before
    this process ends. What is installed must fit together. Raises ArtfError; a half-made
    environment is removed.
    """
    lock = REQUIREMENTS / f"{requirements}.txt"
    root = _root(wheel, requirements, lock)
    root.parent.mkdir(parents=True, exist_ok=True)
    with suppress(KeyError):
        # Locked by this process: nobody else may make it again, even when it was removed by hand.
        _in_use.pop(root).close()
    guard = _guard(root).open("a")
    try:
        while not _use(root, guard):
            # Whoever waits to make it holds no lock on its use: it shares what another has made.
            fcntl.flock(guard, fcntl.LOCK_UN)
            with root.with_name(f"{root.name}.making.lock").open("a") as making:
                _lock(making, fcntl.LOCK_EX, f"another artf makes {root.name}; waiting for it")
                if not (root / "READY").exists():
                    _lock(guard, fcntl.LOCK_EX, f"another artf uses {root.name}; waiting for it")
                    _install(root, wheel, lock, guard.fileno())
    except BaseException:
        guard.close()
        raise
    _in_use[root] = guard
    sweep(root.parent, requirements)
    return root / "bin" / "python"


def find(wheel: Path) -> Path | None:
    """The Python of the environment that `make(wheel)` made; None where there is none."""
    root = _root(wheel, RUNTIME, REQUIREMENTS / f"{RUNTIME}.txt")
    return root / "bin" / "python" if (root / "READY").exists() else None


def _root(wheel: Path, requirements: str, lock: Path) -> Path:
    key = f"{pins.sha256_of(wheel)[:12]}-{pins.sha256_of(lock)[:8]}"
    return cache_dir() / "venvs" / f"{requirements}-{key}"


def _guard(root: Path) -> Path:
    """Locked by whoever writes or removes `root`, and shared by those who use it (flock(2))."""
    return root.with_name(f"{root.name}.lock")


def _lock(guard: TextIO, kind: int, waiting: str) -> None:
    try:
        fcntl.flock(guard, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        note(waiting)
        fcntl.flock(guard, kind)


def _use(root: Path, guard: TextIO) -> bool:
    """Whether `root` is whole; it then counts as used now, and stays while `guard` is open."""
    _lock(guard, fcntl.LOCK_SH, f"another artf writes {root.name}; waiting for it")
    with suppress(FileNotFoundError):
        # Never makes the mark, as touch would.
        os.utime(root / "READY")
        return True
    return False


def _install(root: Path, wheel: Path, lock: Path, held: int) -> None:
    interpreter = interpreters.need(wheel.name.split("-")[2])
    try:
        uv.make(interpreter, root, lock, wheel, held)
    except FetchError as error:
        raise ArtfError(error.what, error.cure) from None
    (root / "READY").touch()


def sweep(folder: Path, requirements: str) -> None:
    """Removes the environments of one kind from `folder`, but for the KEPT last used ones.

    One that another artf makes, uses or removes right now stays as it is.
    """
    name = re.compile(rf"{re.escape(requirements)}-[0-9a-f]{{12}}-[0-9a-f]{{8}}")
    marks = [root / "READY" for root in folder.iterdir() if name.fullmatch(root.name)]
    used: list[tuple[float, Path]] = []
    for mark in marks:
        # None of an unfinished one, and another artf may sweep at the same time.
        with suppress(FileNotFoundError):
            used.append((mark.stat().st_mtime, mark))
    for _, mark in sorted(used)[:-KEPT]:
        with _guard(mark.parent).open("a") as guard, suppress(BlockingIOError):
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # First: half an environment must not be taken for a whole one.
            mark.unlink(missing_ok=True)
            shutil.rmtree(mark.parent, ignore_errors=True)
