"""What a host's RDMA devices count themselves: a bound that no counter of ours can talk away."""

from __future__ import annotations

from pathlib import Path

#: What /sys/class/infiniband has of a port.
_PACKETS = "hw_counters/rcvd_pkts"
_GID = "gids/0"
#: What Soft-RoCE takes off an Ethernet's MTU for its headers, and what a packet can then carry.
_HEADERS = 80
_MTUS = (4096, 2048, 1024, 512, 256)


def _network(classes: Path, port: Path) -> Path:
    """The network device under an RDMA device of this kernel's.

    Soft-RoCE names it in the attributes of a GID; soft-iWARP's first GID has its hardware address.
    """
    try:
        return classes / "net" / (port / "gid_attrs/ndevs/0").read_text().strip()
    except OSError:
        digits = (port / _GID).read_text().replace(":", "")[:12]
    address = ":".join(digits[at : at + 2] for at in range(0, 12, 2))
    for network in sorted((classes / "net").iterdir()):
        if (network / "address").read_text().strip() == address:
            return network
    raise FileNotFoundError(f"no network device of {port} has the address {address}")


def _mtu(ethernet: int) -> int:
    return next((mtu for mtu in _MTUS if mtu <= ethernet - _HEADERS), 0)


def device_bytes(classes: Path = Path("/sys/class"), within_host: bool = False) -> int:
    """The most bytes of tensors that all RDMA devices of this host can have received.

    Soft-RoCE: full packets, as many as it counted. Soft-iWARP counts nothing; its network device
    does, all bytes; what processes of one host send each other goes over the loopback device, which
    counts where it is asked for (`within_host`).
    """
    total = 0
    for port in sorted(classes.glob("infiniband/*/ports/1")):
        network = _network(classes, port)
        packets = port / _PACKETS
        if packets.exists():
            total += int(packets.read_text()) * _mtu(int((network / "mtu").read_text()))
        else:
            counting = [network, *([classes / "net/lo"] if within_host else [])]
            total += sum(int((each / "statistics/rx_bytes").read_text()) for each in counting)
    return total
