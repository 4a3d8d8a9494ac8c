"""A server that drains a connection (protocol/late_hellos.h) fails no step."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.processes import run_program
from common.protocols import AR

pytestmark = pytest.mark.timeout(180)

HERE = Path(__file__).parent


# A short request, and one that gRPC would not keep by itself, from 256 KiB on.
@pytest.mark.parametrize(("values", "steps"), [(1, 6000), (2**17, 3000)], ids=["short", "long"])
def test_calls_too_late_for_a_drained_connection(values: int, steps: int) -> None:
    """They are made again on the next one, as they never left or were never looked at."""
    settings = {"protocol": AR, "values": values, "steps": steps}
    assert run_program(HERE / "programs/drained.py", settings, 150).result() == {}
