"""A server that drains a connection, as grpc/retirement.h has it done, fails no step."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.processes import run_program
from common.protocols import AR

pytestmark = pytest.mark.timeout(180)

HERE = Path(__file__).parent


# By default gRPC keeps a request of up to 256 KiB, to repeat it; the long one has 512 KiB.
@pytest.mark.parametrize(("values", "steps"), [(1, 6000), (2**17, 3000)], ids=["short", "long"])
def test_calls_too_late_for_a_drained_connection(values: int, steps: int) -> None:
    """They are made again on the next one, as they never left or were never looked at."""
    settings = {"protocol": AR, "values": values, "steps": steps}
    said = run_program(HERE / "programs/drained.py", settings, 150).result()
    assert said["errors"] == {}
    # Else nothing was drained.
    assert said["connections"] > 50
