"""TensorFlow's SlurmClusterResolver and that of digits.py, told of a step of four tasks.

Prints what each says, as one object of JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts/clusters"))

import tensorflow as tf

digits: Any = importlib.import_module("digits")

_STEP = {
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "n[9-10]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
}
_PORT = 8888
_STOCK = tf.distribute.cluster_resolver.SlurmClusterResolver
#: The node of each task by its rank, and its number there.
_BLOCK = [("n9", 0), ("n9", 1), ("n10", 0), ("n10", 1)]
_CYCLIC = [("n9", 0), ("n10", 0), ("n9", 1), ("n10", 1)]


def become(rank: int, places: list[tuple[str, int]]) -> None:
    host, local = places[rank]
    task = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(local), "SLURMD_NODENAME": host}
    os.environ.update(_STEP, **task)


def addresses(kind: Any, places: list[tuple[str, int]], **settings: Any) -> list[tuple[str, int]]:
    """The address that each of Slurm's tasks takes for its own."""
    found = []
    for rank in range(len(places)):
        become(rank, places)
        resolver = kind(port_base=_PORT, **settings)
        spec = resolver.cluster_spec()
        host, _, port = spec.task_address(*resolver.get_task_info()).partition(":")
        found.append((host, int(port) - _PORT))
    return found


def without_gpus() -> str:
    become(0, _BLOCK)
    try:
        _STOCK(gpus_per_node=0, gpus_per_task=0).cluster_spec()
    except ValueError as error:
        return str(error)
    return ""


def without_nvidia_smi() -> str:
    become(0, _BLOCK)
    path = os.environ["PATH"]
    # Not even where this machine has one.
    os.environ["PATH"] = "/nowhere"
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    try:
        _STOCK()
    except OSError as error:
        return type(error).__name__
    finally:
        os.environ["PATH"] = path
    return ""


def main() -> None:
    said = {
        "stock without GPUs": without_gpus(),
        "stock without nvidia-smi": without_nvidia_smi(),
        "hosts": [host for host, _ in _BLOCK],
        "stock": addresses(_STOCK, _BLOCK, gpus_per_node=2, gpus_per_task=1, auto_set_gpu=False),
        "ours": addresses(digits.Resolver, _BLOCK),
        "ours, cyclic": addresses(digits.Resolver, _CYCLIC),
        "accelerators": digits.Resolver().num_accelerators(),
        "ports": [digits.port_base(job) for job in (0, 1, 1249, 1250)],
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
