"""What a recommender's step moves between a worker and the parameter server, as lists of sizes.

Each mix has the counts and the range of sizes of one kind of model; what is in between follows a
rule, so that everyone measures the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

KIB = 1 << 10
MIB = 1 << 20


@dataclass(frozen=True)
class Mix:
    """One step: a worker pulls every tensor, then pushes every one.

    The first `updates` pushes are added to the first `updates` tensors that are pulled, so they
    have their sizes; then come pieces of ids, which the parameter server counts.
    """

    name: str
    #: The model that moves such tensors.
    model: str
    #: Bytes of each tensor that is pulled.
    pulls: tuple[int, ...]
    updates: int
    #: Bytes of each piece of ids (64 bits each) that is pushed.
    ids: tuple[int, ...]

    @property
    def pushes(self) -> tuple[int, ...]:
        """Bytes of each tensor that is pushed."""
        return self.pulls[: self.updates] + self.ids

    @property
    def pulled_bytes(self) -> int:
        """Bytes that a step moves from the parameter server to the worker."""
        return sum(self.pulls)

    @property
    def pushed_bytes(self) -> int:
        """Bytes that a step moves from the worker to the parameter server."""
        return sum(self.pushes)

    @property
    def total_bytes(self) -> int:
        """Bytes that a step moves, both ways."""
        return self.pulled_bytes + self.pushed_bytes


def spread(low: int, high: int, count: int, unit: int) -> tuple[int, ...]:
    """`count` sizes from `low` to `high`, each larger than the last by the same factor.

    They are rounded to multiples of `unit`, of which `low` and `high` must be.
    """
    factor = (high / low) ** (1 / (count - 1))
    return tuple(round(low * factor**i / unit) * unit for i in range(count))


_DENSE = (9 * MIB, 4 * MIB, MIB, 256 * KIB, 64 * KIB)

_ALL = (
    Mix("empty", "a step that moves nothing", pulls=(), updates=0, ids=()),
    Mix(
        "wide-deep",
        "wide & deep on Criteo: five dense layers, 52 columns, their ids",
        pulls=_DENSE + 52 * (4 * KIB,),
        updates=57,
        ids=101 * (4 * KIB,),
    ),
    Mix(
        "wide-ctr",
        "a wide model of click-through rates: 300 columns, 320 pieces of ids",
        pulls=spread(2 * KIB, 64 * KIB, 300, 64),
        updates=0,
        ids=80 * (KIB, 2 * KIB, 3 * KIB, 4 * KIB),
    ),
    Mix(
        "multi-hot",
        "columns of many values each, and their gradients",
        pulls=spread(64 * KIB, 6 * MIB, 26, KIB),
        updates=26,
        ids=(),
    ),
    Mix(
        "fused",
        "all parameters in two tensors, and their gradients",
        pulls=(MIB, 16 * MIB),
        updates=2,
        ids=(),
    ),
)

#: By name, in the order of the table.
MIXES: Mapping[str, Mix] = {mix.name: mix for mix in _ALL}
