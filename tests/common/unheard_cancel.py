"""A collective that gives up before its receive can be told so writes nothing any more."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from common.mpi_job import Job
from common.preload import preloadable
from common.processes import Program, own_address

_HERE = Path(__file__).parent
#: Seconds: the receive's time, in which both ends must have met, how long it is held, and what the
#: bytes have to come after that.
_LIMIT, _HELD, _AFTER = 2.0, 6.0, 2.0
#: glibc maps a tensor by itself, and the next one of its size at the same place. Else the thread
#: that made it may have an arena of its own, whose memory goes to no tensor of another thread.
_MAPPED = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}


def check_unheard_cancel(
    protocol: str,
    folder: Path,
    size: int,
    env: Mapping[str, str] | None = None,
    job: Job | None = None,
    seconds: float = 60,
) -> None:
    """By a broadcast of so many float32 values."""
    holding = str(preloadable(_HERE / "hold_receives.cc", folder))
    shared = {
        "cluster": {"worker": [own_address() for _ in range(2)]},
        "protocol": protocol,
        "size": size,
        "limit": _LIMIT,
        "held": _HELD,
        "after": _AFTER,
        "held by": holding,
    }
    served, leader = (
        Program(
            _HERE / "unheard_cancel_main.py",
            {**shared, "index": index},
            {**_MAPPED, **(env or {}), "LD_PRELOAD": holding},
            job=job,
        )
        for index in (1, 0)
    )
    try:
        line = leader.line(seconds)
        assert line, leader.wait(10).report()
        said = json.loads(line)
    finally:
        served.kill()
        leader.kill()
    assert "Collective has timed out during execution" in said["ended"]
    assert _LIMIT <= said["seconds"] < _HELD, "its end waited for the receive"
    # Else the test says nothing.
    assert said["lies at"] == said["meant for"], said
    assert said["late"] == 0, f"what was freed was written to: {said}"
