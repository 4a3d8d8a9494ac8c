"""What a process says of the bytes that it moved; for programs that child_env() runs."""

from __future__ import annotations

import os
import struct
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tcp_info import tcp_sockets
from tensorflow.python import ar_grpc

from common.devices import device_bytes


def own_counters() -> dict[str, Any]:
    """status() of this process, as `connections` what the kernel counted on its TCP sockets, and as
    `device_bytes` the most that this host's RDMA devices can have received, and as `pmpi_bytes`
    what it received by MPI as MPI's own profiling interface counts it (count_mpi.cc)."""
    return {
        **ar_grpc.status(),
        "connections": [asdict(each) for each in tcp_sockets()],
        "device_bytes": device_bytes(within_host=True),
        "pmpi_bytes": _pmpi_bytes(),
    }


def _pmpi_bytes() -> int:
    counted = Path(os.environ.get("ARTF_MPI_COUNTS", "/nowhere")) / f"count-{os.getpid()}"
    if not counted.exists():
        return 0
    _messages, count = struct.unpack("=QQ", counted.read_bytes())
    return int(count)
