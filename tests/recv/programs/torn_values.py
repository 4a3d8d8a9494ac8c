"""Hunts for torn values over one path, and forks while it does.

This process is the ps; two workers are processes of their own. Prints, as JSON, how many values
each hunt looked at and what was wrong.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python import ar_grpc

from common.ar import eventually
from common.processes import ServerProcess
from common.protocols import STOCK_COLLISION
from recv.hunt import PS, RESTART, WORKERS, Hunt
from recv.hunts import HUNTS, AssignUnordered

KIB, MIB = 2**10, 2**20
#: Below the rendezvous size, above it, and where the copy is made by several threads: 8-byte words
#: and each one's part of the iterations.
SIZES = {256: 0.6, 64 * KIB + 1: 0.3, 640 * KIB + 1: 0.1}
#: What a forked child overwrites at most, of this process's arena.
SCRIBBLED = 64 * MIB


# --- forks ----------------------------------------------------------------------------------------


def writable_around(address: int) -> tuple[int, int]:
    """The mapping of this process that an address lies in: its first address and its length."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= address < last:
            return first, last - first
    raise LookupError(f"no mapping at {address:#x}")


def fork_and_scribble(places: list[tuple[int, int]]) -> int:
    """A child that overwrites its own copy of this memory and ends; its exit status."""
    child = os.fork()
    if child == 0:
        for address, length in places:
            ctypes.memset(address, 99, length)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# --- all of it ------------------------------------------------------------------------------------


def collided(log: Path, since: int) -> bool:
    """Whether a master of stock's says so in the log, from that offset on.

    A worker that refuses a step because of it says nothing to the other one, which waits. Then the
    client's time is up, and the master gives its reason when it has waited a minute more.
    """

    def said() -> bool:
        return STOCK_COLLISION.encode() in log.read_bytes()[since:]

    return eventually(said, seconds=75, every=1)


def hunt(
    kind: type[Hunt], protocol: str, targets: dict[str, str], words: int, steps: int, log: Path
) -> dict[str, Any]:
    """Looks at `steps` values; begins anew where stock's ids collide."""
    view = tf.fill([MIB], tf.constant(7, tf.uint8))._numpy()
    places = [(view.ctypes.data, view.nbytes)]
    if "arena" in ar_grpc.status():
        first, length = writable_around(view.ctypes.data)
        places.append((first, min(length, SCRIBBLED)))
    said: dict[str, Any] = {"seen": 0, "wrong": [], "rounds": 0, "collisions": 0, "forks": []}
    began = time.monotonic()
    while said["seen"] < steps and not said["wrong"]:
        since = log.stat().st_size
        one = kind(protocol, targets, words, steps - said["seen"])
        one.run(lambda: said["forks"].append(fork_and_scribble(places)))
        if one.late and collided(log, since):
            one.collisions += len(one.late)
        else:
            one.wrong += one.late
        said["rounds"] += 1
        said["seen"] += one.seen
        said["wrong"] += one.wrong
        said["collisions"] += one.collisions
    if view.min() != 7 or view.max() != 7:
        said["wrong"].append("a forked child wrote this process's memory")
    return {**said, "seconds": round(time.monotonic() - began, 2)}


def main() -> None:
    settings = json.loads(sys.argv[1])
    spec, protocol = settings["cluster"], settings["protocol"]
    log = Path(settings["log"])
    # Of all three: each is a session's master.
    with log.open("ab") as stderr:
        os.dup2(stderr.fileno(), sys.stderr.fileno())
    workers = [
        ServerProcess(spec, "worker", number, protocol, log, settings["env"])
        for number in range(len(WORKERS))
    ]
    server = tf.distribute.Server(
        tf.train.ClusterSpec(spec),
        job_name="ps",
        task_index=0,
        protocol=protocol,
        config=tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4),
    )
    targets = {PS: server.target}
    targets.update(zip(WORKERS, (f"grpc://{address}" for address in spec["worker"])))
    result: dict[str, Any] = {}
    try:
        for worker in workers:
            worker.wait_ready()
        for kind in HUNTS:
            for words, part in SIZES.items():
                steps = max(round(settings["iterations"] * part / len(HUNTS)), 2 * RESTART)
                result[f"{kind.name}, {words} words"] = hunt(
                    kind, protocol, targets, words, steps, log
                )
        largest = max(SIZES)
        result[AssignUnordered.name] = hunt(AssignUnordered, protocol, targets, largest, 2000, log)
        statuses = [worker.status() for worker in workers]
        result["statuses"] = [ar_grpc.status(), *statuses]
    finally:
        for worker in workers:
            worker.kill()
    print(json.dumps(result), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
