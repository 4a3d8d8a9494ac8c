"""What a step moves: so many tensors of so many bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from artf_cli.errors import ArtfError

_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_SIZE = re.compile(r"(?:(\d{1,4})x)?(\d{1,15})(b|[kmg]ib)?", re.IGNORECASE)
_EMPTY = "empty"
#: Of the pages that a step needs, at most one in so many may be warm from a smaller step.
_GROWTH = 16


@dataclass(frozen=True)
class Size:
    """`tensors` tensors of `bytes` bytes each, in every step; no tensor at all is an empty step."""

    bytes: int
    tensors: int = 1

    @property
    def total(self) -> int:
        """Bytes that travel in a step."""
        return self.bytes * self.tensors

    def __str__(self) -> str:
        if not self.tensors:
            return _EMPTY
        value, unit = self.bytes, "B"
        for larger in ("KiB", "MiB", "GiB"):
            if value % 1024:
                break
            value, unit = value // 1024, larger
        return f"{f'{self.tensors}x' if self.tensors > 1 else ''}{value} {unit}"


#: A step that runs on both tasks and reads nothing.
EMPTY = Size(0, 0)


def parse_size(text: str, tensors: int = 1) -> Size:
    """A size such as `4`, `64KiB`, `256MiB`, `32x64KiB` or `empty`.

    `tensors` is the count without an `x`. Raises ArtfError, which says what is accepted.
    """
    if text.strip().lower() == _EMPTY:
        return EMPTY
    found = _SIZE.fullmatch(text.strip())
    size = None
    if found:
        count = int(found.group(1)) if found.group(1) else tensors
        size = Size(int(found.group(2)) * _UNITS[(found.group(3) or "").lower()], count)
    if size is None or size.bytes < 1 or size.tensors < 1:
        raise ArtfError(
            f"{text!r} is not a size",
            "give bytes (4), KiB, MiB or GiB (64KiB), tensors x size (32x64KiB), or empty",
        )
    return size


def apart(sizes: Iterable[Size]) -> list[list[Size]]:
    """The sizes in groups, ascending, each at least sixteen times the one before it.

    Steps of a group can follow each other after one idle pause, and each still finds nearly all of
    its pages cold.
    """
    groups: list[list[Size]] = []
    for size in sorted(sizes, key=lambda one: one.total):
        for group in groups:
            if size.total >= _GROWTH * group[-1].total:
                group.append(size)
                break
        else:
            groups.append([size])
    return groups
