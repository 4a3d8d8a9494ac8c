"""What this machine offers to RDMA: devices, ports, their names, and whether they move bytes.

By pyverbs in the system's Python where that has it (rdma_probe.py), else by sysfs, which knows
less.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from artf_cli import system
from artf_cli.checks import OK, WARN, Check, check
from artf_cli.rdma_probe import gid_text

SYSTEM_PYTHON = Path("/usr/bin/python3")
SYSFS = Path("/sys/class/infiniband")
_PROGRAM = Path(__file__).with_name("rdma_probe.py")
_PROBE_S = 60.0
_MEMLOCK_CURE = (
    "raise it: ulimit -l unlimited (memlock in /etc/security/limits.conf; in a container:"
    " --ulimit memlock=-1)"
)
_NOT_LISTED = "libibverbs does not list it"
_NO_GIDS = "give its network device an IP address: ip address add ADDRESS/24 dev NAME"


class Gid(TypedDict):
    """A name of a port in a network: `type` is InfiniBand, RoCE v1 or RoCE v2."""

    index: int
    gid: str
    type: str


class Probe(TypedDict):
    """What came of a WRITE and a READ by a queue pair that is connected to itself."""

    ok: bool
    bytes: int
    error: str


class Port(TypedDict):
    """A device's port; an MTU is in bytes, None where sysfs does not tell it."""

    port: int
    state: str
    link_layer: str
    active_mtu: int | None
    max_mtu: int | None
    gids: list[Gid]
    pkeys: list[str]
    probe: Probe | None


class Device(TypedDict):
    """A device; `error` says why it could not be opened."""

    name: str
    ports: list[Port]
    error: str


class Problem(TypedDict):
    """Something that is wrong or missing: one line, and its cure."""

    what: str
    cure: str


class Rdma(TypedDict):
    """The member `rdma` of the doctor's object. `source` is pyverbs or sysfs, `missing` why not the
    former; limits are in bytes, None: unlimited."""

    source: str
    missing: str
    devices: list[Device]
    memlock: dict[str, int | None]
    problems: list[Problem]


def gid_type(text: str) -> str:
    """As sysfs writes it, in the words of pyverbs's: "IB/RoCE v1" is one thing there."""
    return text.strip().replace("IB/RoCE v1", "RoCE v1")


def _text(path: Path) -> str:
    """A file's text; empty where it has none: an empty place of a table cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _numbered(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*"), key=lambda path: int(path.name))


def _is_iwarp(device: str, root: Path) -> bool:
    """Such a device has IP addresses and no GIDs; the kernel calls it an RNIC."""
    return "RNIC" in _text(root / device / "node_type")


def from_sysfs(root: Path = SYSFS) -> list[Device]:
    """The devices as the kernel shows them in files."""
    devices: list[Device] = []
    for device in sorted(root.iterdir()) if root.is_dir() else []:
        ports: list[Port] = []
        for folder in _numbered(device / "ports"):
            layer = _text(folder / "link_layer")
            gids: list[Gid] = []
            for path in _numbered(folder / "gids"):
                kind = gid_type(_text(folder / "gid_attrs/types" / path.name))
                gid = _text(path)
                if not kind or not gid.replace(":", "").strip("0"):
                    continue
                kind = "InfiniBand" if layer == "InfiniBand" else kind
                gids.append(Gid(index=int(path.name), gid=gid_text(gid), type=kind))
            keys = [_text(path) for path in _numbered(folder / "pkeys")]
            ports.append(
                Port(
                    port=int(folder.name),
                    # Such as "4: ACTIVE".
                    state=_text(folder / "state").split(":")[-1].strip(),
                    link_layer=layer,
                    active_mtu=None,
                    max_mtu=None,
                    gids=gids,
                    pkeys=[key for key in keys if key and int(key, 16) & 0x7FFF],
                    probe=None,
                )
            )
        devices.append(Device(name=device.name, ports=ports, error=""))
    return devices


def from_pyverbs(python: Path = SYSTEM_PYTHON) -> tuple[list[Device] | None, str]:
    """The devices as libibverbs shows them, or None and why not."""
    # Its own environment: ours has folders for another Python.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            [str(python), str(_PROGRAM)],
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
            env=env,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return None, f"{python} {_PROGRAM.name} ended with status {done.returncode}: {last}"
    said: dict[str, Any] = json.loads(done.stdout)
    if "missing" in said:
        return None, f"{python} has no pyverbs ({said['missing']})"
    return said["devices"], ""


def _memlock() -> dict[str, int | None]:
    limits = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    shown = [None if limit == resource.RLIM_INFINITY else limit for limit in limits]
    return dict(zip(("soft", "hard"), shown))


def _cure_of(error: str) -> str:
    """The cure of what a device says when it is opened or used."""
    lower = error.lower()
    if "memory" in lower or "errno: 12" in lower or "lock" in lower:
        return _MEMLOCK_CURE
    return (
        "see that /dev/infiniband/uverbs* is there and may be opened (in a container: --device"
        f" /dev/infiniband), and that it has its driver; {system.cure('rdma')}"
    )


def _port_problem(name: str, port: Port, iwarp: bool) -> Problem | None:
    if port["state"] != "ACTIVE":
        return Problem(
            what=f"{name} is {port['state']}",
            cure="plug its cable in, or bring its network device up: ip link set NAME up"
            if port["link_layer"] == "Ethernet"
            else "plug its cable in, and see that a subnet manager runs (opensm)",
        )
    if iwarp:
        return None
    kinds = {gid["type"] for gid in port["gids"]}
    if port["link_layer"] == "Ethernet" and "RoCE v2" not in kinds:
        what = "has RoCE v1 GIDs only, which do not leave its Ethernet segment"
        if "RoCE v1" not in kinds:
            what = "has no RoCE GID"
        return Problem(what=f"{name} {what}", cure=_NO_GIDS)
    if not port["gids"]:
        return Problem(what=f"{name} has no GID", cure="see that a subnet manager runs (opensm)")
    if not port["pkeys"]:
        return Problem(
            what=f"{name} is in no partition", cure="let the subnet manager give it a key"
        )
    probed = port["probe"]
    if probed is not None and not probed["ok"]:
        return Problem(what=f"{name}: {probed['error']}", cure=_cure_of(probed["error"]))
    return None


def problems(devices: Sequence[Device], root: Path = SYSFS) -> list[Problem]:
    """What is wrong with devices and ports."""
    found: list[Problem] = []
    for device in devices:
        if device["error"]:
            what = f"{device['name']}: {device['error']}"
            found.append(Problem(what=what, cure=_cure_of(device["error"])))
        for port in device["ports"]:
            iwarp = _is_iwarp(device["name"], root)
            problem = _port_problem(f"{device['name']}/{port['port']}", port, iwarp)
            if problem is not None:
                found.append(problem)
    return found


def look(python: Path = SYSTEM_PYTHON, root: Path = SYSFS) -> Rdma:
    """Looks at the devices; registers a few pages with each active one for a moment."""
    devices, missing = from_pyverbs(python)
    source = "sysfs" if devices is None else "pyverbs"
    shown = from_sysfs(root)
    if devices is not None:
        # What it leaves out has no driver in user space, or no file in /dev/infiniband.
        names = {device["name"] for device in devices}
        for device in shown:
            if device["name"] not in names:
                devices.append({**device, "error": _NOT_LISTED})
    shown = shown if devices is None else devices
    return Rdma(
        source=source,
        missing=missing,
        devices=shown,
        memlock=_memlock(),
        problems=problems(shown, root),
    )


def _ports(found: Rdma) -> list[tuple[str, Port]]:
    return [
        (f"{device['name']}/{port['port']}", port)
        for device in found["devices"]
        for port in device["ports"]
    ]


def devices_check(found: Rdma) -> Check:
    """At least one port is up."""
    usable = [
        port
        for device in found["devices"]
        for port in device["ports"]
        if port["state"] == "ACTIVE" and not device["error"]
    ]
    lines = [
        f"{name} {port['state'].lower()} ({port['link_layer']})" for name, port in _ports(found)
    ]
    lines += [
        f"{device['name']}: {device['error']}" for device in found["devices"] if device["error"]
    ]
    return check(
        "rdma devices",
        OK if usable else WARN,
        ", ".join(lines) or "none in /sys/class/infiniband",
        "nothing to do for TCP; for RDMA, load the adapter's driver and bring its port up"
        " (a plain network card: rdma link add rxe0 type rxe netdev NAME)",
    )


def probe_check(found: Rdma) -> Check:
    """Each active port has moved bytes."""
    active = [(name, port) for name, port in _ports(found) if port["state"] == "ACTIVE"]
    if not active:
        return check("rdma probe", OK, "no active port to probe")
    if found["source"] != "pyverbs":
        cure = system.cure("pyverbs")
        return check("rdma probe", WARN, f"not probed: {found['missing']}", cure)
    said = []
    cure = ""
    for name, port in active:
        probed = port["probe"]
        error = probed["error"] if probed is not None else "not probed"
        if error:
            said.append(f"{name}: {error}")
            if not _is_iwarp(name.split("/")[0], SYSFS):
                cure = cure or _cure_of(error)
        elif probed is not None:
            said.append(f"{name}: RDMA WRITE and READ of {probed['bytes']} bytes came back right")
    return check("rdma probe", WARN if cure else OK, ", ".join(said), cure)


def memlock_check(found: Rdma) -> Check:
    """What a device works with is locked in memory."""
    limits = found["memlock"]
    shown = {name: "unlimited" if n is None else f"{n >> 10} KiB" for name, n in limits.items()}
    # Root's CAP_IPC_LOCK lifts the limit; without an adapter nothing is locked.
    free = limits["soft"] is None or os.geteuid() == 0 or not found["devices"]
    return check(
        "memlock limit",
        OK if free else WARN,
        f"soft {shown['soft']}, hard {shown['hard']}",
        _MEMLOCK_CURE,
    )
