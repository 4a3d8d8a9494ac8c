"""The paths that tensors take between tasks, and the counters that prove which one they took.

Tests that compare all paths run over each of PATHS; a new one joins them by a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from common.protocols import STOCK

#: Payload that the kernel counted on TCP connections between the tasks; all other counters are of
#: `tensorflow.python.ar_grpc.status()`.
TCP = "tcp_bytes_received"
STREAM = "stream_bytes_received"
RENDEZVOUS = "rendezvous_bytes"

#: Tensors of this many bytes are "large": every path that has a way of its own for them uses it.
LARGE = 2 * 2**20


@dataclass(frozen=True)
class DataPath:
    """A protocol, the environment of its servers, and what shows that a tensor went this way.

    `small` and `large` name the counters of the receiving process in which the bytes of tensors
    below and from LARGE show. All other paths' counters must stand still.
    """

    name: str
    protocol: str
    #: What status()["paths"] calls a connection; None: it lists none.
    fabric: str | None
    small: str
    large: str
    env: Mapping[str, str] = field(default_factory=dict)


PATHS: tuple[DataPath, ...] = (
    DataPath("grpc", "grpc", None, TCP, TCP),
    DataPath("grpc+ar/shm", "grpc+ar", "shm", STREAM, RENDEZVOUS, {"AR_GRPC_FABRICS": "shm"}),
    DataPath("grpc+ar/tcp", "grpc+ar", "tcp", TCP, TCP, {"AR_GRPC_FABRICS": "tcp"}),
)

#: What runs each time in tests that look for what a path of ours does wrong; the matrix runs over
#: all of PATHS.
OURS = tuple(path for path in PATHS if path.protocol != STOCK)

#: Every counter that proves some path.
COUNTERS = tuple(sorted({name for path in PATHS for name in (path.small, path.large)}))
