"""The server protocols that every suite runs over; a new one joins by one line here."""

from __future__ import annotations

PROTOCOLS: tuple[str, ...] = (
    "grpc",
    "grpc+ar",
)

#: The wheel's own, unpatched protocol: its known upstream bugs are tolerated by name.
STOCK = "grpc"

#: The one whose fabrics, arena and handshake have tests of their own.
AR = "grpc+ar"


def select(names: str) -> tuple[str, ...]:
    """The protocols named in a comma-separated list, or all for an empty one."""
    chosen = tuple(name.strip() for name in names.split(",") if name.strip())
    unknown = [name for name in chosen if name not in PROTOCOLS]
    if unknown:
        raise ValueError(
            f"--protocols: unknown {', '.join(unknown)} (known: {', '.join(PROTOCOLS)})"
        )
    return chosen or PROTOCOLS
