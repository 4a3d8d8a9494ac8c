"""A ps and a worker whose program uses MPI itself, by mpi4py: before, beside and after its server.

Rank 0 is the ps. In each round the worker moves tensors both ways, and the ps waits for its word in
MPI, so that two threads of that process call it. mpi4py has begun MPI and ends it. Rank 0 prints of
each task which MPI it has, the sums of the program's own, and what MPI brought the server.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

# First: this initializes MPI.
import mpi4py.MPI as MPI
import tensorflow as tf

from common.counters import own_counters
from common.pair import MIB, PS, WORKER, large_step, session_at


def moved_both_ways(target: str, rounds: int, size: int) -> Iterator[list[float]]:
    """Runs a step each way in each round; 0.0 where a tensor is what it was."""
    with session_at(target) as session:
        steps = [large_step(way, size // MIB) for way in ((PS, WORKER), (WORKER, PS))]
        for _ in range(rounds):
            yield [float(session.run(step)) for step in steps]


def main() -> None:
    settings = json.loads(sys.argv[1])
    rounds = settings["rounds"]
    world = MPI.COMM_WORLD
    said: dict[str, Any] = {"library": MPI.Get_library_version()}
    said["multiple"] = MPI.Query_thread() == MPI.THREAD_MULTIPLE
    said["sums"] = [world.allreduce(world.rank + 1)]
    task = (PS, WORKER)[world.rank]
    server = tf.distribute.Server(
        settings["cluster"], job_name=task.split(":")[0], task_index=0, protocol="grpc+mpi"
    )
    own: Iterable[list[float] | None] = [None] * rounds
    if task == WORKER:
        own = moved_both_ways(server.target, rounds, settings["moved"])
    said["spreads"] = [world.bcast(spreads, root=1) for spreads in own]
    said["received"] = own_counters()["mpi_bytes_received"]
    said["sums"].append(world.allreduce(world.rank + 1))
    # By one rank: lines of two could meet.
    everybody = world.gather((task, said))
    if everybody is not None:
        print(json.dumps(dict(everybody)))


if __name__ == "__main__":
    main()
