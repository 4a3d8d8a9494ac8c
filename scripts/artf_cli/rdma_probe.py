"""What libibverbs says of this machine's RDMA devices, and whether each moves bytes.

A program for the system's Python, the only one that Debian's python3-pyverbs is for: it imports
nothing of this package, and prints one JSON object: {"devices": [...]}, or {"missing": why}.
"""

from __future__ import annotations

import ipaddress
import json
import sys
import time
from typing import Any

STATES = {0: "NOP", 1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE", 5: "ACTIVE_DEFER"}
LINK_LAYERS = {0: "InfiniBand", 1: "InfiniBand", 2: "Ethernet"}
GID_TYPES = {0: "InfiniBand", 1: "RoCE v1", 2: "RoCE v2"}
#: libibverbs' own numbers.
INFINIBAND, ETHERNET, ACTIVE, ROCE_V2 = 0, 2, 4, 2
BYTES = 4096
WAIT_S = 5.0


def mtu_bytes(number: int) -> int | None:
    """An MTU of libibverbs (1 to 5) in bytes."""
    return 128 << number if 1 <= number <= 5 else None


def gid_text(gid: str) -> str:
    """A GID as an IPv6 address in its short form; one that maps IPv4 with that in dots."""
    address = ipaddress.IPv6Address(gid)
    mapped = address.ipv4_mapped
    return f"::ffff:{mapped}" if mapped else str(address)


def best_gid(gids: list[dict[str, Any]]) -> int:
    """The place of the GID that our fabric would prefer: RoCE v2 by IPv4, by IPv6, the rest."""

    def rank(gid: dict[str, Any]) -> tuple[bool, bool, bool]:
        text = gid["gid"]
        return (gid["type"] != "RoCE v2", not text.startswith("::ffff:"), text.startswith("fe80:"))

    index: int = min(gids, key=rank)["index"]
    return index


def write_and_read(context: Any, port: dict[str, Any], lid: int) -> None:
    """RDMA WRITE and then READ of some bytes by a queue pair that is connected to itself."""
    from pyverbs import enums
    from pyverbs.addr import AHAttr, GlobalRoute
    from pyverbs.cq import CQ
    from pyverbs.mr import MR
    from pyverbs.pd import PD
    from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
    from pyverbs.wr import SGE, SendWR

    remote = enums.IBV_ACCESS_REMOTE_WRITE | enums.IBV_ACCESS_REMOTE_READ
    domain = PD(context)
    regions = [MR(domain, BYTES, enums.IBV_ACCESS_LOCAL_WRITE | remote) for _ in range(3)]
    source, target, back = regions
    sent = bytes(range(256)) * (BYTES // 256)
    source.write(sent, BYTES)
    queue = CQ(context, 4)
    capacity = QPCap(max_send_wr=2, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
    pair = QP(domain, QPInitAttr(qp_type=enums.IBV_QPT_RC, scq=queue, rcq=queue, cap=capacity))
    attributes = QPAttr(port_num=port["port"])
    attributes.qp_access_flags = remote
    attributes.path_mtu = port["active_mtu"].bit_length() - 8
    attributes.dest_qp_num = pair.qp_num
    attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
    attributes.timeout, attributes.retry_cnt = 14, 6
    attributes.rnr_retry, attributes.min_rnr_timer = 6, 12
    if port["link_layer"] == "Ethernet":
        index = best_gid(port["gids"])
        gid = context.query_gid(port["port"], index)
        route = GlobalRoute(dgid=gid, sgid_index=index, hop_limit=64)
        attributes.ah_attr = AHAttr(port_num=port["port"], is_global=1, gr=route)
    else:
        attributes.ah_attr = AHAttr(port_num=port["port"], is_global=0, dlid=lid)
    pair.to_rts(attributes)
    steps = [("WRITE", enums.IBV_WR_RDMA_WRITE, source), ("READ", enums.IBV_WR_RDMA_READ, back)]
    for name, opcode, local in steps:
        piece = SGE(local.buf, BYTES, local.lkey)
        request = SendWR(opcode=opcode, num_sge=1, sg=[piece], send_flags=enums.IBV_SEND_SIGNALED)
        request.set_wr_rdma(target.rkey, target.buf)
        pair.post_send(request)
        limit = time.monotonic() + WAIT_S
        count, completions = queue.poll()
        while count == 0:
            if time.monotonic() > limit:
                raise TimeoutError(f"RDMA {name} gave no completion in {WAIT_S:g} s")
            time.sleep(0.001)
            count, completions = queue.poll()
        if completions[0].status != enums.IBV_WC_SUCCESS:
            raise OSError(f"RDMA {name} failed with completion status {completions[0].status}")
    if bytes(back.read(BYTES, 0)) != sent:
        raise OSError(f"RDMA WRITE and READ of {BYTES} bytes brought others back")
    # The pair before what it uses.
    for each in (pair, queue, *regions, domain):
        each.close()


def probe(context: Any, transport: int, port: dict[str, Any], lid: int) -> dict[str, Any]:
    """Whether an active port moves bytes: {"ok", "bytes", "error"}."""
    error = ""
    if transport != INFINIBAND:
        error = "not probed: iWARP connects by librdmacm only"
    elif not port["gids"] or port["active_mtu"] is None:
        error = "not probed: the port has no GID"
    else:
        try:
            write_and_read(context, port, lid)
        except Exception as failed:  # whatever pyverbs raises is what the user wants to see
            error = str(failed).splitlines()[0] if str(failed) else type(failed).__name__
    return {"ok": not error, "bytes": 0 if error else BYTES, "error": error}


def look_at_port(context: Any, transport: int, number: int, ports: int) -> dict[str, Any]:
    """A port as doctor shows it."""
    attributes = context.query_port(number)
    # The table of all ports; one that is longer is refused.
    entries = context.query_gid_table(max(attributes.gid_tbl_len, 1) * ports)
    port: dict[str, Any] = {
        "port": number,
        "state": STATES.get(attributes.state, str(attributes.state)),
        "link_layer": LINK_LAYERS.get(attributes.link_layer, str(attributes.link_layer)),
        "active_mtu": mtu_bytes(attributes.active_mtu),
        "max_mtu": mtu_bytes(attributes.max_mtu),
        "gids": [
            {
                "index": entry.gid_index,
                "gid": gid_text(entry.gid_str()),
                "type": GID_TYPES.get(entry.gid_type, str(entry.gid_type)),
            }
            for entry in entries
            if entry.port_num == number
        ],
        "pkeys": [
            f"0x{key:04x}"
            for key in (context.query_pkey(number, i) for i in range(attributes.pkey_tbl_len))
            if key & 0x7FFF
        ],
        "probe": None,
    }
    if attributes.state == ACTIVE:
        port["probe"] = probe(context, transport, port, attributes.lid)
    return port


def look_at(device: Any) -> dict[str, Any]:
    """A device as doctor shows it; `error` says why it could not be opened or asked."""
    from pyverbs.device import Context

    found: dict[str, Any] = {"name": device.name.decode(), "ports": [], "error": ""}
    try:
        context = Context(name=found["name"])
        ports = context.query_device().phys_port_cnt
        for number in range(1, ports + 1):
            port = look_at_port(context, device.transport_type, number, ports)
            found["ports"].append(port)
        context.close()
    except Exception as failed:  # as above
        found["error"] = str(failed).splitlines()[0] if str(failed) else type(failed).__name__
    return found


def main() -> None:
    """Prints the object."""
    try:
        from pyverbs.device import get_device_list
    except ImportError as missing:
        print(json.dumps({"missing": str(missing)}))
        return
    try:
        devices = get_device_list()
    except Exception as failed:  # a machine without the kernel's part has none
        print(json.dumps({"devices": [], "error": str(failed)}))
        return
    print(json.dumps({"devices": [look_at(device) for device in devices]}))


if __name__ == "__main__":
    # As a script this folder is first in the path, whose modules are not for this Python.
    sys.path.pop(0)
    main()
