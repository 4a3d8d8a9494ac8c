"""The paths that tensors take between tasks, and the counters that prove which one they took.

Tests that compare all paths run over each of PATHS; a new one joins them by a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from common.protocols import MPI, STOCK, VERBS
from common.virtual_host import SLOWER

#: Payload that the kernel counted on TCP connections between the tasks; all other counters are of
#: `tensorflow.python.ar_grpc.status()`.
TCP = "tcp_bytes_received"
STREAM = "stream_bytes_received"
RENDEZVOUS = "rendezvous_bytes"
MPI_RECEIVED = "mpi_bytes_received"
VERBS_RECEIVED = "verbs_bytes_received"
#: What the host's RDMA devices counted themselves, as a bound: common/devices.py.
DEVICE = "device_bytes"
#: What MPI's own profiling interface counted.
PMPI = "pmpi_bytes"

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
    #: Of the virtual host in which all of it runs, whose device must have counted the bytes, too;
    #: empty: this machine.
    driver: str = ""
    #: Memory is registered while it is first used, and where nobody waits for it: until then large
    #: tensors show in `small`.
    registers: bool = False
    #: Of the MPI (artf_cli/mpis.py) whose job the servers are; it must have counted the bytes, too.
    mpi: str = ""

    @property
    def classic(self) -> bool:
        """Only what memcpy could copy goes this way; other tensors' bytes come in the responses."""
        return self.protocol in (MPI, VERBS)

    @property
    def marks(self) -> tuple[pytest.MarkDecorator, ...]:
        """Of every test over this path."""
        return (pytest.mark.virtual_host(self.driver),) if self.driver else ()

    @property
    def patience(self) -> int:
        """How many times as long a test over it may take."""
        return SLOWER if self.driver else 1


PATHS: tuple[DataPath, ...] = (
    DataPath("grpc", "grpc", None, TCP, TCP),
    DataPath("grpc+ar/shm", "grpc+ar", "shm", STREAM, RENDEZVOUS, {"AR_GRPC_FABRICS": "shm"}),
    DataPath("grpc+ar/tcp", "grpc+ar", "tcp", TCP, TCP, {"AR_GRPC_FABRICS": "tcp"}),
    DataPath(
        "grpc+ar/rxe",
        "grpc+ar",
        "verbs",
        STREAM,
        RENDEZVOUS,
        {"AR_GRPC_FABRICS": "verbs"},
        driver="rxe",
        registers=True,
    ),
    DataPath(
        "grpc+ar/siw",
        "grpc+ar",
        "verbs",
        STREAM,
        RENDEZVOUS,
        {"AR_GRPC_FABRICS": "verbs"},
        driver="siw",
        registers=True,
    ),
    DataPath("grpc+verbs/rxe", VERBS, None, VERBS_RECEIVED, VERBS_RECEIVED, driver="rxe"),
    DataPath("grpc+verbs/siw", VERBS, None, VERBS_RECEIVED, VERBS_RECEIVED, driver="siw"),
    DataPath("grpc+mpi/mpich", MPI, None, MPI_RECEIVED, MPI_RECEIVED, mpi="debian-mpich"),
    DataPath("grpc+mpi/openmpi", MPI, None, MPI_RECEIVED, MPI_RECEIVED, mpi="debian-openmpi"),
    DataPath("grpc+mpi/mpich5", MPI, None, MPI_RECEIVED, MPI_RECEIVED, mpi="mpich-5-standard"),
    DataPath("grpc+mpi/openmpi5", MPI, None, MPI_RECEIVED, MPI_RECEIVED, mpi="openmpi-5"),
)

#: What runs each time in tests that look for what a path of ours does wrong; the matrix runs over
#: all of PATHS. A virtual host is slow, and MPI's ranks poll: their paths are left to --full.
OURS = tuple(path for path in PATHS if path.protocol != STOCK and not (path.driver or path.mpi))

#: Every counter that proves some path.
COUNTERS = tuple(sorted({name for path in PATHS for name in (path.small, path.large)}))
