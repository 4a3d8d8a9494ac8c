"""What a container of the LeNet training is told by its environment.

`TASK` is `ps:0` or `worker:1`; `CLUSTER` has the addresses of all tasks
(`ps=HOST:PORT worker=HOST:PORT,HOST:PORT`); `PROTOCOL` is `grpc+ar` where it is not set.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def refuse(name: str, text: str, why: str) -> NoReturn:
    """Exits with one line that names the variable."""
    sys.exit(f"{name}={text!r} {why}; see the tops of settings.py and replica.py")


def _cluster() -> dict[str, list[str]]:
    text = os.environ.get("CLUSTER", "")
    jobs = dict(word.partition("=")[::2] for word in text.split())
    cluster = {job: [one for one in tasks.split(",") if one] for job, tasks in jobs.items()}
    if set(cluster) != {"ps", "worker"} or len(cluster["ps"]) != 1 or not cluster["worker"]:
        refuse("CLUSTER", text, "is not one ps and some workers")
    return cluster


def place() -> tuple[dict[str, list[str]], str, int]:
    """(the cluster, this container's job, its index); exits with one line where they are none."""
    cluster = _cluster()
    text = os.environ.get("TASK", "")
    job, _, index = text.partition(":")
    if not index.isdigit() or int(index) >= len(cluster.get(job, [])):
        refuse("TASK", text, "is no task of the cluster")
    return cluster, job, int(index)


def protocol() -> str:
    """The protocol of this container's server."""
    return os.environ.get("PROTOCOL", "grpc+ar")


def drop_proxies() -> None:
    """Forgets proxies that the engine hands on: gRPC would send even loopback connections there."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy"):
        os.environ.pop(name, None)
        os.environ.pop(name.upper(), None)
