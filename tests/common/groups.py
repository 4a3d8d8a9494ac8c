"""A control group with a limit of memory, as a container has (cgroups(7), versions 1 and 2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from common.ar import eventually

_ROOT = Path("/sys/fs/cgroup")
#: The names of a limit of memory, and of one that leaves no swap beside it.
_LIMITS = {
    "memory.max": ("memory.swap.max", 0),
    "memory.limit_in_bytes": ("memory.memsw.limit_in_bytes", None),
}


def _around() -> Path:
    """The folder of the next group around this process in which groups can have a limit."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    paths = {controllers: path for _, controllers, path in lines}
    for controllers, path in paths.items():
        if "memory" in controllers.split(","):
            return _ROOT / "memory" / path.lstrip("/")
    own = _ROOT / paths.get("", "/").lstrip("/")
    # Of version 2: one that has processes of its own can give its groups no controller.
    for group in (own, *own.parents):
        enabled = group / "cgroup.subtree_control"
        if enabled.exists() and "memory" in enabled.read_text().split():
            return group
    return own


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """The folder of a new group, whose processes may use `limit` bytes together.

    It lies in this process's group or in one around that. A process joins it by writing 0 to
    `cgroup.procs` there, and has ended at the end. Skips the test where no such group can be made,
    which takes root and the memory controller.
    """
    folder = _around() / f"artf-{uuid4().hex[:8]}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group of memory can be made here: {error}")
    try:
        names = [name for name in _LIMITS if (folder / name).exists()]
        if not names:
            pytest.skip(f"the memory controller is not enabled below {folder.parent}")
        (folder / names[0]).write_text(str(limit))
        beside, value = _LIMITS[names[0]]
        # Where the kernel does not count swap there is none of it, or no such file.
        with suppress(OSError):
            (folder / beside).write_text(str(limit if value is None else value))
        yield folder
    finally:
        # The kernel lets go of what a killed process had some time after it is waited for.
        assert eventually(partial(_removed, folder)), f"{folder} is still in use"


def _removed(folder: Path) -> bool:
    with suppress(OSError):
        folder.rmdir()
    return not folder.exists()
