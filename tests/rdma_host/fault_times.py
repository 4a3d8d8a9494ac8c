"""What follows a fault in a virtual RDMA host, and after what time."""

from __future__ import annotations

from artf_cli.bench.figures import FaultRow


class FaultTimes:
    """Seconds from faults, or from what is named, to what follows, as rows of a table."""

    def __init__(self) -> None:
        self.rows: list[FaultRow] = []

    def add(self, fault: str, driver: str, seen: str, *seconds: str | float) -> None:
        """`seen` followed after `seconds`, one or more of them."""
        said = [round(float(each), 4) for each in seconds]
        print(f"{driver}: {fault}: {seen} after {said} s")
        self.rows.append({"fault": fault, "driver": driver, "seen": seen, "seconds": said})
