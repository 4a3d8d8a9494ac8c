"""What the tasks' counters grew by, and whether that is what the path promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.paths import COUNTERS, DEVICE, LARGE, PMPI, TCP, DataPath
from common.processes import Cluster

#: TCP bytes between tasks that use another fabric: the handshakes of new connections.
HANDSHAKES = 16 * 2**10

#: What common.counters.own_counters() says of one process.
Counters = dict[str, Any]


@dataclass(frozen=True)
class Payload:
    """Bytes of tensors that a case brings from task to task, at least; `large` ones from LARGE.

    `encoded` are those of strings, variants and resources, which memcpy could not copy.
    """

    small: int = 0
    large: int = 0
    encoded: int = 0

    @property
    def bytes(self) -> int:
        """Of tensors that memcpy could copy."""
        return self.small + self.large

    def __add__(self, other: Payload) -> Payload:
        return Payload(
            self.small + other.small, self.large + other.large, self.encoded + other.encoded
        )

    def __mul__(self, times: int) -> Payload:
        return Payload(self.small * times, self.large * times, self.encoded * times)


def read(cluster: Cluster) -> dict[str, Counters]:
    """The counters of all tasks of a cluster, by task; all of them must be alive."""
    return {task: cluster[task].counters() for task in cluster.tasks}


def _connections(tasks: Mapping[str, Counters]) -> dict[str, dict[int, int]]:
    """Bytes received by socket, of those TCP connections of which both ends are among the tasks."""
    ends = {
        (each["local"], each["remote"]) for said in tasks.values() for each in said["connections"]
    }
    return {
        task: {
            each["inode"]: each["bytes_received"]
            for each in said["connections"]
            if (each["remote"], each["local"]) in ends
        }
        for task, said in tasks.items()
    }


def carried(
    after: Mapping[str, Counters], before: Mapping[str, Counters] | None = None
) -> dict[str, int]:
    """What each of COUNTERS grew by in all tasks together; without `before`, since they started.

    And DEVICE, where the tasks' host has an RDMA device, and PMPI.
    """
    before = before or {}
    grown = dict.fromkeys((*COUNTERS, PMPI), 0)
    for task, said in after.items():
        for name in grown:
            if name != TCP:
                grown[name] += said[name] - before.get(task, {}).get(name, 0)
    # One device for all tasks: what it counted from the first look to the last one.
    if device := max((said.get(DEVICE, 0) for said in after.values()), default=0):
        grown[DEVICE] = device - min((said[DEVICE] for said in before.values()), default=0)
    earlier = _connections(before)
    for task, sockets in _connections(after).items():
        known = earlier.get(task, {})
        grown[TCP] += sum(count - known.get(inode, 0) for inode, count in sockets.items())
    return grown


def assert_path(path: DataPath, payload: Payload, grown: Mapping[str, int]) -> None:
    """The payload shows in the path's own counters, and no other counter moved.

    Where the path has a device or an MPI of its own, that one counted the bytes, too.
    """
    own = {path.small, path.large}
    total = sum(grown[name] for name in own)
    # A case of empty tensors has no payload, but their messages have a size.
    least = payload.bytes if path.classic else max(payload.bytes + payload.encoded, 1)
    assert total >= least, f"{path.name} carried {total} bytes of at least {least}: {grown}"
    if path.classic:
        least = max(payload.encoded, 1)
        assert grown[TCP] >= least, f"responses carried {grown[TCP]} bytes of {least}: {grown}"
    if path.mpi:
        assert grown[PMPI] >= total, f"MPI counts {grown[PMPI]} bytes, {path.name} {total}"
    large = grown[path.large]
    least = min(payload.large, LARGE) if path.registers else payload.large
    assert large >= least, (
        f"{path.large} of {path.name} counts {large} bytes of at least {least}: {grown}"
    )
    limits = {name: HANDSHAKES if name == TCP else 0 for name in COUNTERS if name not in own}
    if path.classic:
        # Its calls go over TCP.
        del limits[TCP]
    moved = {name: grown[name] for name, most in limits.items() if grown[name] > most}
    assert not moved, f"bytes that {path.name} should have carried went elsewhere: {moved}"
    if path.driver:
        # Soft-iWARP's bytes are those of a network device, which carries gRPC's TCP, too.
        most = grown.get(DEVICE, 0) - (grown[TCP] if path.driver == "siw" else 0)
        assert total <= most, f"{path.name} carried {total} bytes, its device {most} at most"


def assert_fabric(path: DataPath, said: Sequence[Counters], addresses: Sequence[str]) -> None:
    """Where tasks of these addresses are connected to each other, it is over the path's fabric."""
    names = {f"ipv4:{address}" for address in addresses}
    fabrics = [
        fabric for each in said for address, fabric in each["paths"].items() if address in names
    ]
    wanted = {path.fabric} if path.fabric else set()
    assert set(fabrics) == wanted, f"connected over {sorted(set(fabrics))}, not {path.fabric}"
