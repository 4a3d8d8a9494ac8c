"""The table's rows: what a case is, and how its function registers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Callable, Optional

from common.processes import Cluster
from matrix.meter import Counters, Payload

GIB = 2**30

#: Gets a ps and two workers of one path. What its tensors travel between in other processes it
#: returns as their counters, read at their end, by task.
Run = Callable[[Cluster], Optional[Mapping[str, Counters]]]


@dataclass(frozen=True)
class Case:
    """One row.

    The payload is what `run` moves; where `run` restarts a task, whose counters begin anew, it is
    what `then` moves after it.
    """

    name: str
    group: str
    proves: str
    payload: Payload
    run: Run
    then: Callable[[Cluster], None] | None = None
    #: The paths over which it runs without --run-slow; None: all.
    quick_on: tuple[str, ...] | None = None
    #: Bytes of memory that must be available.
    memory: int = 0
    #: Seconds after which it has failed; the servers may have to be started in them.
    limit: float = 180.0


#: In the order of the table.
GROUPS = ("recv: values", "recv: steps", "tf2", "at rest", "faults")
CASES: dict[str, Case] = {}


def case(
    group: str,
    name: str,
    proves: str,
    payload: Payload,
    *,
    then: Callable[[Cluster], None] | None = None,
    quick_on: tuple[str, ...] | None = None,
    memory: int = 0,
    limit: float = 180.0,
) -> Callable[[Run], Run]:
    """Registers the function that follows as the next row of its group."""

    def register(run: Run) -> Run:
        if name in CASES or group not in GROUPS:
            raise ValueError(f"{group}, {name}: a name of its own and one of {GROUPS} is wanted")
        CASES[name] = Case(name, group, proves, payload, run, then, quick_on, memory, limit)
        return run

    return register


def rows() -> list[Case]:
    """All cases in the order of the table."""
    return sorted(CASES.values(), key=lambda each: GROUPS.index(each.group))
