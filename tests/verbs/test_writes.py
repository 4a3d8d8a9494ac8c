"""Transfers of grpc+verbs between two hosts, while their link or one of their processes fails."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from common import cpp
from common.said import values
from rdma_host import machine
from rdma_host.fault_times import FaultTimes
from rdma_host.machine import ADDRESSES, Guest, Link

# The first one waits until all is compiled.
pytestmark = pytest.mark.timeout(900)

PORT = 7473
GUEST = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.perturb=165"}
RETRIES = "the RDMA connection has failed: rxe0/1: transport retry counter exceeded."
#: Seven times 0.27 s without an answer, and what a slow host adds.
RETRIES_S = 6
#: Without a sign of life, between two looks for one (verbs/link.h), and what Soft-RoCE waits before
#: it destroys a pair whose packets pile up before a host that is gone.
SILENT_S = 30 + 5 + 75
#: A tensor's bytes: while it is written there is time to do something. For Soft-RoCE a message that
#: loses more than seven packets is one that cannot be sent, so over links that lose it is small.
TENSOR, SMALL = 2 << 20, 64 << 10
#: Of writes_program.cc: tensors at once, and how often in the case "whole".
AT_ONCE, ROUNDS = 6, 1 + 24 + 1

on_each_driver = pytest.mark.parametrize(
    "driver", ["rxe", pytest.param("siw", marks=pytest.mark.slow)]
)


@pytest.fixture(scope="module")
def built() -> Path:
    return cpp.build("verbs", ["writes_program"], ["plain"]) / "plain/tests/verbs"


def written(
    built: Path,
    case: str,
    link: Link,
    size: int = TENSOR,
    after: str = "true",
    guest: Mapping[str, str] = GUEST,
) -> list[dict[str, str]]:
    """What a sender and a receiver of grpc+verbs say. `after` runs on the receiver's host then."""
    program = str(built / "writes_program")
    receives = shlex.join([program, "receiver", ADDRESSES[0], str(PORT), case, str(size)])
    sender = Guest([program, "sender", str(PORT), case, str(size)], guest)
    receiver = Guest(["bash", "-c", f"set -e; {receives}; {after}"], guest)
    done = machine.run([sender, receiver], link, timeout_s=200)
    assert [each.status for each in done] == [0, 0], done
    said = [values(each.stdout) for each in done]
    print(said)
    return said


@pytest.mark.parametrize(
    ("size", "link"),
    [
        pytest.param(TENSOR, Link(), marks=pytest.mark.slow),
        (SMALL, Link(loss_percent=1)),
    ],
    ids=["whole", "loses 1 %"],
)
@on_each_driver
def test_writes_over_a_link_that(built: Path, driver: str, size: int, link: Link) -> None:
    sender, receiver = written(built, "whole", replace(link, driver=driver), size)
    assert receiver["next"] == "ok"
    assert int(sender["written"]) == int(receiver["received"]) == ROUNDS * AT_ONCE * size
    assert sender["held"] == "0"
    # It did lose.
    if driver == "rxe" and link.loss_percent:
        assert int(sender["again"]) + int(receiver["again"]) > 0


@on_each_driver
def test_writes_cancelled_while_nothing_arrives(
    built: Path, driver: str, fault_times: FaultTimes
) -> None:
    """The receivers' wait ends at once; what the sender's device sends again when the link is back
    comes late, and spoils nothing: until then the memory is nobody else's."""
    # The retries take 7.5 s, the cut 4.
    sender, receiver = written(
        built, "cut-4", Link(driver), guest={**GUEST, "RDMA_QP_TIMEOUT": "18"}
    )
    assert float(receiver["cancel_seconds"]) < 3
    # Of one whose note has come, and whose answer was lost with the link, nothing is to be kept.
    assert 0 < int(receiver["kept"]) <= int(receiver["cancelled"]) * TENSOR
    assert (receiver["status"], receiver["spoiled"], receiver["next"]) == (".", "0", "ok")
    # All of them came, wanted or not.
    assert int(sender["written"]) == int(receiver["received"]) == 3 * AT_ONCE * TENSOR
    fault = "grpc+verbs: the link is cut for 4 s, and receives are cancelled meanwhile"
    fault_times.add(fault, driver, "each has ended, from the cancel on", receiver["cancel_seconds"])
    free = "the memory is free again, from the cancel on"
    fault_times.add(fault, driver, free, receiver["kept_seconds"])


@pytest.mark.slow
def test_writes_cancelled_on_a_link_that_fails(built: Path, fault_times: FaultTimes) -> None:
    """Both ends give it up, the memory comes back, and the next link works."""
    _, receiver = written(built, "cut-8", Link())
    assert float(receiver["cancel_seconds"]) < 3
    assert 0 < int(receiver["kept"]) <= int(receiver["cancelled"]) * TENSOR
    assert receiver["status"] == RETRIES
    assert (receiver["spoiled"], receiver["next"]) == ("0", "ok")
    fault = "grpc+verbs: the link is cut for 8 s, and receives are cancelled meanwhile"
    fault_times.add(fault, "rxe", "each has ended, from the cancel on", receiver["cancel_seconds"])
    free = "the memory is free again, from the cancel on, as the link has failed"
    fault_times.add(fault, "rxe", free, receiver["kept_seconds"])


@on_each_driver
def test_a_sender_dies_while_it_writes(built: Path, driver: str) -> None:
    _, receiver = written(built, "sender-dies", Link(driver))
    assert int(receiver["failed"]) > 0
    assert receiver["kept"] == "0"


@on_each_driver
@pytest.mark.slow
def test_a_receiver_dies_while_it_is_written_to(
    built: Path, driver: str, fault_times: FaultTimes
) -> None:
    """Its host does not answer any more: the device says so, and what was to be sent goes."""
    sender, _ = written(built, "receiver-dies", Link(driver), after="sleep 15")
    assert sender["held"] == "0"
    assert float(sender["gone_seconds"]) < RETRIES_S
    fault = "grpc+verbs: the receiver's process ends while it is written to"
    fault_times.add(fault, driver, "the sender holds nothing any more", sender["gone_seconds"])


@pytest.mark.slow
def test_a_receiver_s_host_dies_while_it_is_written_to(
    built: Path, fault_times: FaultTimes
) -> None:
    """The device may never say so: Soft-RoCE does not time what it has not sent, and sends nothing
    more where its packets pile up. Then the peer's silence ends the link."""
    sender, _ = written(built, "receiver-dies", Link())
    assert sender["held"] == "0"
    assert float(sender["gone_seconds"]) < SILENT_S
    fault = "grpc+verbs: the receiver's process ends while it is written to, and its host goes off"
    fault_times.add(fault, "rxe", "the sender holds nothing any more", sender["gone_seconds"])
