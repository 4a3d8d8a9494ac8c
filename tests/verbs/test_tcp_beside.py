"""What connections of verbs cost plain TCP in the same process, between two virtual hosts."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from common import cpp
from rdma_host import machine
from rdma_host.machine import ADDRESSES, Guest, Link

# The first one waits until all is compiled. What other suites do beside it would be measured, too.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PORT = "7471"
ROUNDS = 5
#: That idle. libsiw takes the 145th page that the kernel has it map for an error (its offset is
#: SIW_INVAL_UOBJ_KEY of siw-abi.h), which a process of ours comes to with its 25th connection.
CONNECTIONS = {"rxe": 64, "siw": 20}
#: Of round trips per second, the median of the rounds' ratios, since what else the machine does
#: changes from second to second. A timer that keeps the reactor for 2 of 3 ms leaves 0.6 of them,
#: 10 ms of it for each completion a tenth.
LEAST_IDLE = 0.7
LEAST_BUSY = 0.5


@pytest.fixture(scope="module")
def program() -> Path:
    return cpp.build("verbs", ["tcp_beside_program"], ["plain"]) / (
        "plain/tests/verbs/tcp_beside_program"
    )


def ratio(found: dict[str, list[float]], name: str, other: str) -> float:
    """The median of what each round says."""
    each = [one / another for one, another in zip(found[name], found[other])]
    print(
        f"{name} / {other}: {statistics.median(each):.2f} of {' '.join(f'{e:.2f}' for e in each)}"
    )
    return statistics.median(each)


@pytest.mark.parametrize("driver", machine.DRIVERS)
def test_tcp_is_as_fast_as_without(program: Path, driver: str) -> None:
    """Beside connections that idle, and beside READs as beside those of another process."""
    connections = str(CONNECTIONS[driver])
    answer = Guest([str(program), "answer", PORT])
    ask = Guest([str(program), "ask", ADDRESSES[0], PORT, connections, str(ROUNDS)])
    done = machine.run([answer, ask], Link(driver), timeout_s=300)
    assert [each.status for each in done] == [0, 0], done
    found: dict[str, list[float]] = {}
    for line in done[1].stdout.splitlines():
        name, value = line.split()
        found.setdefault(name, []).append(float(value))
    assert {len(values) for values in found.values()} == {ROUNDS}
    for name, values in found.items():
        print(f"{name}: {statistics.median(values):.1f} of {' '.join(f'{v:.1f}' for v in values)}")
    # Both have read all the while.
    assert min(found["here_mbytes"] + found["elsewhere_mbytes"]) > 1
    assert ratio(found, "idle", "none") >= LEAST_IDLE
    assert ratio(found, "here", "elsewhere") >= LEAST_BUSY
