"""The ways that bytes can take between two servers, for tests that compare all of them."""

from __future__ import annotations

from common.protocols import AR, STOCK

#: By name: the servers' protocol, and what their environment says besides.
PATHS: dict[str, tuple[str, dict[str, str]]] = {
    "grpc": (STOCK, {}),
    "grpc+ar-shm": (AR, {"AR_GRPC_FABRICS": "shm"}),
    "grpc+ar-tcp": (AR, {"AR_GRPC_FABRICS": "tcp"}),
}
