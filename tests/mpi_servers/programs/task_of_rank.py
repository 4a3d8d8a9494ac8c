"""A task of a ps and a worker, chosen by its rank: rank 0 is the worker, which runs a step.

With `task` it is that one; with `says` it prints that before its server starts; with `stays` it
serves until it is ended. Prints what it is, how long
its server's start took, and what MPI brought it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import tensorflow as tf

from common.counters import own_counters
from common.pair import PS, WORKER, large_step, session_at

#: What a launcher tells a rank: Hydra's, and Open MPI's.
_RANK = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")


def rank() -> int:
    (told,) = (os.environ[name] for name in _RANK if name in os.environ)
    return int(told)


def step_of_worker(target: str, moved: int) -> dict[str, Any]:
    with session_at(target) as session:
        try:
            return {"spread": float(session.run(large_step((PS, WORKER), moved >> 20)))}
        except tf.errors.OpError as error:
            return {"error": str(error)}


def main() -> None:
    settings = json.loads(sys.argv[1])
    task = settings.get("task") or (WORKER if rank() == 0 else PS)
    job, index = task.split(":")
    if "says" in settings:
        print(settings["says"], flush=True)
    began = time.monotonic()
    server = tf.distribute.Server(
        settings["cluster"], job_name=job, task_index=int(index), protocol="grpc+mpi"
    )
    said: dict[str, Any] = {"rank": rank(), "task": task}
    said["start_seconds"] = time.monotonic() - began
    print("READY", flush=True)
    if task == WORKER:
        said |= step_of_worker(server.target, settings["moved"])
        said["mpi_bytes_received"] = own_counters()["mpi_bytes_received"]
    print(json.dumps(said), flush=True)
    if settings.get("stays"):
        server.join()


if __name__ == "__main__":
    main()
