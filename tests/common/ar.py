"""What the tests of `grpc+ar` ask its servers: counters, paths, thresholds, memory."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from common.processes import Cluster

Value = TypeVar("Value")

#: Smaller tensors never come from the arena (tensorflow/cpu_arena.h).
ARENA_SMALLEST = 16 * 2**10
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_COUNTERS = ("rendezvous", "rendezvous_bytes", "chunk_bytes", "staged_bytes")


def eventually(look: Callable[[], Value], seconds: float = 10.0, every: float = 0.02) -> Value:
    """look()'s first true value; after `seconds` its last one, which the caller's assert shows."""
    deadline = time.monotonic() + seconds
    while True:
        value = look()
        if value or time.monotonic() > deadline:
            return value
        time.sleep(every)


def settle(most: int, look: Callable[..., int], *arguments: Any, seconds: float = 10.0) -> None:
    """Waits until look(*arguments) is not more than `most`; AssertionError if it stays above."""
    above = 0

    def low_enough() -> bool:
        nonlocal above
        above = look(*arguments)
        return above <= most

    assert eventually(low_enough, seconds), f"{above} after {seconds:.0f} s, instead of {most}"


def offers(cluster: Cluster, task: str) -> int:
    return int(cluster[task].status()["offers_open"])


def arena_bytes(cluster: Cluster, task: str) -> int:
    """Bytes of its arena that a task uses, or keeps warm."""
    arena = cluster[task].status()["arena"]
    return int(arena["in_use"] + arena["warm_free"])


def wait_no_offers(cluster: Cluster, *tasks: str, seconds: float = 10.0) -> None:
    """Every tensor that these tasks offered is let go, now or soon."""
    for task in tasks:
        settle(0, offers, cluster, task, seconds=seconds)


class Moved:
    """What the counters of a task grew by since this was made: `Moved(cluster, "ps:0")()`."""

    def __init__(self, cluster: Cluster, task: str) -> None:
        self._server = cluster[task]
        self._before = self._server.status()

    def __call__(self) -> dict[str, int]:
        now = self._server.status()
        return {name: now[name] - self._before[name] for name in _COUNTERS}


def moved(rendezvous: int = 0, size: int = 0, staged: int = 0, chunks: int = 0) -> dict[str, int]:
    """What Moved gives where just this was moved."""
    return dict(zip(_COUNTERS, (rendezvous, size, chunks, staged)))


def thresholds(status: dict[str, Any], table: str = "protocols") -> list[tuple[int, int, str]]:
    """A printed table's rows, as (lowest, highest, protocol): the row starts between the two.

    A printed size has four digits, so of larger ones only a range is known.
    """
    rows = []
    for line in status[table].splitlines():
        found = re.match(r"\s*([\d.e+]+) (\w+) \.\. (?:\S+ \S+)\s\s+(\w+(?: \w+)?)\s", line)
        assert found, line
        size = float(found[1]) * _UNITS[found[2]]
        rows.append((int(size * 0.999), int(size * 1.001) + 1, found[3]))
    return rows


def ways_outside_arena(
    status: dict[str, Any], size: int
) -> list[tuple[dict[str, int], dict[str, int]]]:
    """What Moved may give at the receiver and at the sender, whose `status` this is, for a tensor
    that peers cannot read where it lies: the sender's own table says whether a copy pays.
    """
    rows = thresholds(status, "protocols_outside_arena")
    ways = {
        "eager": (moved(), moved()),
        "staged rendezvous": (moved(rendezvous=1, size=size), moved(staged=size)),
    }
    after = [low for low, _, _ in rows[1:]] + [size + 1]
    return [ways[name] for (low, _, name), end in zip(rows, after) if low <= size <= end]


def path_of(cluster: Cluster, client: str, server: str) -> str | None:
    """The fabric over which one task calls another."""
    job, index = server.split(":")
    paths = cluster[client].status()["paths"]
    fabric: str | None = paths.get(f"ipv4:{cluster.spec[job][int(index)]}")
    return fabric


def _status_bytes(pid: int, field: str) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"{field}:\s+(\d+) kB", text)
    assert found, text
    return int(found[1]) * 1024


def shared_memory(pid: int) -> int:
    """Bytes of shared memory that a process has touched."""
    return _status_bytes(pid, "RssShmem")


def resident(pid: int) -> int:
    """Bytes of memory of its own that a process has touched."""
    return _status_bytes(pid, "RssAnon")


def page_faults(pid: int) -> int:
    """Pages that a process was given since it began, without those read from a disk (proc(5))."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
