"""What a process says of the bytes that it moved; for programs that child_env() runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tcp_info import tcp_sockets
from tensorflow.python import ar_grpc


def own_counters() -> dict[str, Any]:
    """status() of this process, and as `connections` what the kernel counted on its TCP sockets."""
    return {**ar_grpc.status(), "connections": [asdict(each) for each in tcp_sockets()]}
