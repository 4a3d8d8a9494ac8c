"""What a host is and has, as the record of a measurement between two hosts says it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

import psutil

from artf_cli import rdma
from artf_cli.bench import record
from artf_cli.errors import ArtfError
from artf_cli.rdma import SYSFS

_SETTINGS = ("AR_", "RDMA_")
# Beside them in sysfs: what all adapters count, and what Soft-RoCE does.
_COUNTERS = {
    "received_packets": ("counters/port_rcv_packets", 1),
    "received_bytes": ("counters/port_rcv_data", 4),
    "received_packets_of_driver": ("hw_counters/rcvd_pkts", 1),
}


class PortFacts(TypedDict):
    """A port of an RDMA device: MTUs in bytes (None where nobody tells), `network` the network
    device under it ("": none)."""

    name: str
    state: str
    link_layer: str
    active_mtu: int | None
    max_mtu: int | None
    gid_types: list[str]
    network: str
    network_mtu: int | None


class HostFacts(record.Machine):
    """A host that takes part: what it runs, on what, with which settings of the environment."""

    commit: str
    wheel: record.WheelRecord
    load: list[float]
    memory_free_bytes: int
    rdma: list[PortFacts]
    settings: dict[str, str]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _network(port: Path, classes: Path) -> tuple[str, int | None]:
    """The network device of a port's first GID, and its MTU."""
    name = _read(port / "gid_attrs/ndevs/0")
    mtu = _read(classes / "net" / name / "mtu") if name else ""
    return name, int(mtu) if mtu else None


def ports(found: rdma.Rdma, root: Path = SYSFS) -> list[PortFacts]:
    """The ports of all devices."""
    made = []
    for device in found["devices"]:
        for port in device["ports"]:
            folder = root / device["name"] / "ports" / str(port["port"])
            network, mtu = _network(folder, root.parent)
            made.append(
                PortFacts(
                    name=f"{device['name']}/{port['port']}",
                    state=port["state"],
                    link_layer=port["link_layer"],
                    active_mtu=port["active_mtu"],
                    max_mtu=port["max_mtu"],
                    gid_types=sorted({gid["type"] for gid in port["gids"]}),
                    network=network,
                    network_mtu=mtu,
                )
            )
    return made


def received(root: Path = SYSFS) -> dict[str, dict[str, int]]:
    """What each port of this host's RDMA devices has received, as far as its driver counts."""
    counted: dict[str, dict[str, int]] = {}
    for port in sorted(root.glob("*/ports/*")):
        found = {}
        for name, (file, factor) in _COUNTERS.items():
            text = _read(port / file)
            if text.isdigit():
                found[name] = int(text) * factor
        network, _ = _network(port, root.parent)
        text = _read(root.parent / "net" / network / "statistics/rx_bytes") if network else ""
        if text.isdigit():
            found["received_bytes_of_network"] = int(text)
        counted[f"{port.parents[1].name}/{port.name}"] = found
    return counted


def grown(
    before: Mapping[str, Mapping[str, int]], after: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """What was received between two looks, by port and counter."""
    return {
        port: {name: count - before.get(port, {}).get(name, 0) for name, count in now.items()}
        for port, now in after.items()
    }


def facts(wheel: record.WheelRecord) -> HostFacts:
    """This host, as it is now; takes seconds where it has RDMA devices."""
    return HostFacts(
        **record.machine(),
        commit=record.commit(),
        wheel=wheel,
        load=[round(value, 2) for value in os.getloadavg()],
        memory_free_bytes=psutil.virtual_memory().available,
        rdma=ports(rdma.look()),
        settings={name: value for name, value in os.environ.items() if name.startswith(_SETTINGS)},
    )


def check_same(own: HostFacts, peers: HostFacts, where: str) -> None:
    """ArtfError unless both hosts run the same commit and the same wheel."""
    if own["wheel"]["sha256"] != peers["wheel"]["sha256"]:
        raise ArtfError(
            f"{where} has the wheel {peers['wheel']['file']} {peers['wheel']['sha256'][:12]}, this "
            f"host {own['wheel']['file']} {own['wheel']['sha256'][:12]}",
            "copy one of them to the other host and name it there with --wheel",
        )
    if own["commit"] != peers["commit"]:
        raise ArtfError(
            f"{where} is at commit {peers['commit'][:18]}, this host at {own['commit'][:18]}",
            "check the same commit out on both",
        )
