"""What a process says of the bytes that it moved; for programs that child_env() runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tcp_info import tcp_sockets
from tensorflow.python import ar_grpc

from common.devices import device_bytes


def own_counters() -> dict[str, Any]:
    """status() of this process, as `connections` what the kernel counted on its TCP sockets, and as
    `device_bytes` the most that this host's RDMA devices can have received."""
    return {
        **ar_grpc.status(),
        "connections": [asdict(each) for each in tcp_sockets()],
        "device_bytes": device_bytes(within_host=True),
    }
