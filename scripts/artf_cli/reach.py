"""The path by which a server of `grpc+ar` would be reached from here, and why by no better one.

The hello says what answers at an address, from any Python. What a connection would go over depends
on both ends' devices, namespaces and settings: only the wheel itself can tell, which connects.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from artf_cli import cluster, venv
from artf_cli.checks import OK, WARN, Check, check
from artf_cli.paths import DIST
from artf_cli.peer import hello
from artf_cli.peer.channel import parse_address
from artf_cli.supervise import Group, log_folder

#: The fabrics, better ones first; the last needs nothing.
FABRICS = ("shm", "verbs", "tcp")
_VARIABLE = "AR_GRPC_FABRICS"
_REACH_S = 15.0
# Importing TensorFlow, and a server that measures its fabrics.
_START_S = 120.0
_POLL_S = 0.1
_OVER = re.compile(r"connected to \S+ over (\w+)(?:: (.*))?")
_REFUSED = re.compile(r"nothing else reaches \S+: (.*)")
_NO_SERVER = {
    hello.UNREACHABLE: "nothing listens there, or a firewall is between",
    hello.SILENT: "it is no gRPC server, or stands still",
    hello.CLOSED: "it is no gRPC server",
    hello.OTHER: "it is no gRPC server",
    hello.TLS: "a server of grpc+ar answers the hello before TLS: this is another one",
    hello.GRPC: "start it with protocol='grpc+ar', of the RDMA-enhanced wheel",
}


class Fabric(TypedDict):
    """A way to the server: whether it would be reached over it, or why not."""

    fabric: str
    reached: bool
    why: str


class Reach(TypedDict):
    """The member `peer` of the doctor's object.

    `kind` is what answers (peer/hello.py) and `detail` what that said; `path` what a connection
    goes over, None where that was not tried or not found, and `untold` then says why. `fabrics` has
    the better ones that do not reach it, and the path; `log` what the wheel said meanwhile.
    """

    address: str
    kind: str
    detail: str
    wheel: str
    path: str | None
    fabrics: list[Fabric]
    untold: str
    log: list[str]


def _installed() -> tuple[str, Path | None, str]:
    """A wheel of dist/ and its Python in the cache, or why there is none."""
    wheels = sorted(DIST.glob("*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        return "", None, f"there is no wheel in {DIST.name}/: scripts/artf quickstart makes one"
    python = venv.find(wheels[-1])
    why = "" if python else "the wheel is not installed: scripts/artf quickstart installs it"
    return wheels[-1].name, python, why


def _connect(python: Path, address: str, allowed: str | None) -> tuple[str | None, list[str]]:
    """(the path, AR-gRPC's lines) of a connection with only the `allowed` fabrics, None: as the
    environment says."""
    env = {**cluster.environment(), **cluster.TALKATIVE}
    if allowed is not None:
        env[_VARIABLE] = allowed
    command = [*cluster.task_command(python, "reach_peer.py"), address, str(_REACH_S)]
    with log_folder("reach") as logs, Group(logs) as group:
        child = group.start("server", command, env=env)
        limit = time.monotonic() + _START_S
        while (status := child.status()) is None:
            lines = cluster.fabric_lines(child.stderr)
            # It goes on trying for as long as its master waits for the task.
            if _why(lines, _REFUSED, 1):
                return None, lines
            if time.monotonic() > limit:
                return None, [*lines, f"no answer within {_START_S:g} s"]
            time.sleep(_POLL_S)
        lines = cluster.fabric_lines(child.stderr)
        if status != 0:
            return None, [*lines, child.failure(f"ended with status {status}").what]
        path: str | None = json.loads(child.stdout.read_text().splitlines()[-1])["path"]
        return path, lines


def _why(lines: Sequence[str], pattern: re.Pattern[str], group: int) -> str:
    """What the last line of this form gives as the reason."""
    found = [match for match in map(pattern.search, lines) if match]
    return (found[-1][group] or "") if found else ""


def _of_fabric(python: Path, address: str, fabric: str) -> Fabric:
    """Whether it reaches the server when nothing else may."""
    path, lines = _connect(python, address, fabric)
    reached = path == fabric
    why = _why(lines, _REFUSED, 1) or (lines[-1] if lines else "it gives no reason")
    # "shm: why", for a line that may name several.
    return Fabric(fabric=fabric, reached=reached, why="" if reached else _without(why, fabric))


def _without(why: str, fabric: str) -> str:
    return why[len(fabric) + 2 :] if why.startswith(f"{fabric}: ") else why


def _try_all(found: Reach, python: Path) -> None:
    address = found["address"]
    path, found["log"] = _connect(python, address, None)
    found["path"] = path
    if path is None:
        last = found["log"][-1] if found["log"] else "nothing was said"
        found["untold"] = f"no connection within {_REACH_S:g} s: {last}"
        return
    better = FABRICS[: FABRICS.index(path)] if path in FABRICS else FABRICS
    found["fabrics"] = [_of_fabric(python, address, fabric) for fabric in better]
    for each in found["fabrics"]:
        if each["reached"]:
            each["why"] = f"it would, but {_VARIABLE} of an end leaves it out, or prefers another"
    found["fabrics"].append(Fabric(fabric=path, reached=True, why=""))


def look(address: str) -> Reach:
    """Asks what answers at `address`, and connects where that is a server of grpc+ar.

    Raises ArtfError for what is no address.
    """
    host, port = parse_address(address)
    try:
        number = str(socket.getaddrinfo(host, port, socket.AF_INET)[0][4][0])
        answer = hello.ask(number, port)
    except OSError as error:
        answer = hello.Found(hello.UNREACHABLE, error.strerror or str(error))
        number = host
    found = Reach(
        address=f"{number}:{port}",
        kind=answer.kind,
        detail=answer.detail,
        wheel="",
        path=None,
        fabrics=[],
        untold="",
        log=[],
    )
    if answer.kind == hello.GRPC:
        found["path"] = "tcp"
        found["fabrics"] = [
            *(Fabric(fabric=one, reached=False, why=answer.detail) for one in FABRICS[:-1]),
            Fabric(fabric="tcp", reached=True, why=""),
        ]
    elif answer.kind != hello.AR:
        found["untold"] = "no server of grpc+ar answers"
    else:
        found["wheel"], python, why = _installed()
        if python is None:
            found["untold"] = f"only the wheel can tell by what it is reached, and {why}"
        else:
            _try_all(found, python)
    return found


def reach_check(found: Reach) -> Check:
    """One line of the doctor's table."""
    name = f"peer {found['address']}"
    if found["kind"] != hello.AR:
        detail = f"{found['kind']}: {found['detail']}"
        return check(name, WARN, detail, _NO_SERVER[found["kind"]])
    if found["path"] is None:
        return check(name, WARN, f"grpc+ar: {found['untold']}", "see docs/rdma.md")
    lines = [f"a server of grpc+ar, reached over {found['path']}"]
    lines += [f"not over {one['fabric']}: {one['why']}" for one in found["fabrics"] if one["why"]]
    status = OK if found["path"] != FABRICS[-1] else WARN
    return check(name, status, "\n".join(lines), "see docs/rdma.md for what RDMA needs")
