"""Runs the processes of one training in two virtual hosts, some on each."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from common import virtual_host
from common.processes import child_env

#: The hosts' addresses on their link (rdma_host.machine.ADDRESSES, which needs artf's modules).
ADDRESSES = ("10.77.0.1", "10.77.0.2")
MEMORY_MB = 3072
_PROGRAM = Path(__file__).with_name("programs_of_host.py")
_SERVER = Path(__file__).with_name("server_main.py")
_SECONDS = 1200


@dataclass(frozen=True)
class OfHost:
    """A program of one host, with one JSON argument or none. One that `serves` is there before
    those that do not are started, on either host, and is ended after them."""

    script: str
    argument: Any = None
    env: Mapping[str, str] = field(default_factory=dict)
    serves: bool = False


@dataclass(frozen=True)
class Said:
    """What a host's programs said: the others their lines, and servers their last counters."""

    lines: dict[str, list[str]]
    counters: dict[str, dict[str, Any]]
    #: The most bytes of tensors that the host's RDMA devices can have received meanwhile.
    device_bytes: int


def server(cluster: Mapping[str, Sequence[str]], task: str, env: Mapping[str, str]) -> OfHost:
    """A task of `grpc+ar` that serves, and knows nothing of what is trained."""
    job, index = task.split(":")
    settings = {"cluster": cluster, "job": job, "index": int(index), "protocol": "grpc+ar"}
    return OfHost(str(_SERVER), settings, env, serves=True)


def run(
    folder: Path, driver: str, programs: Sequence[Mapping[str, OfHost]], delay_ms: float = 0
) -> list[Said]:
    """Runs each host's programs, by their names, until they have ended well.

    `folder` is an empty one; the hosts' link delays each way by so much.
    """
    commands = []
    for number, of_host in enumerate(programs):
        settings = {
            "number": number,
            "folder": str(folder),
            "programs": {name: asdict(program) for name, program in of_host.items()},
        }
        commands.append([sys.executable, str(_PROGRAM), json.dumps(settings)])
    # The hosts' programs import the tests' modules; artf itself finds its own.
    inner = ["env", f"PYTHONPATH={child_env()['PYTHONPATH']}"]
    words = ["--delay", f"{delay_ms:g}", "--timeout", str(_SECONDS)]
    words += ["--peer", shlex.join([*inner, *commands[1]])]
    done = subprocess.run(
        virtual_host.command(
            driver, *words, "--", *inner, *commands[0], shared=[folder], memory_mb=MEMORY_MB
        ),
        env=virtual_host.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads((folder / f"result{number}").read_text()) for number in (0, 1)]
    return [Said(one["said"], one["counters"], one["device_bytes"]) for one in found]


def paths_to(counters: Mapping[str, Any], cluster: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """By what the tasks of a cluster are reached by a process with these counters."""
    paths = {path.partition(":")[2]: fabric for path, fabric in counters["paths"].items()}
    return {
        f"{job}:{index}": paths[address]
        for job, addresses in cluster.items()
        for index, address in enumerate(addresses)
        if address in paths
    }


def payload(counters: Mapping[str, Any]) -> int:
    """Bytes that our fabrics brought a process: in the stream, and by reading of a peer."""
    return int(counters["stream_bytes_received"] + counters["rendezvous_bytes"])
