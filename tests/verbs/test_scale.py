"""Many connections of one process: what they take of a device and of memory, and that no queue of
any overruns. And READs into memory that nobody registered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from common import cpp
from common.repeated import few
from common.said import values
from rdma_host import machine
from rdma_host.machine import Guest, Link

# The first one waits until all is compiled.
pytestmark = pytest.mark.timeout(900)

PEERS = 256
#: Over soft-iWARP a process has no more than two dozen connections: see docs/rdma.md.
IWARP_PEERS = 16
#: KiB of a connection's buffers, before it has much to do and after: flow_control.h.
IDLE_KIB = 124
BUSY_KIB = 460
#: What a queue pair, its queues and its objects take beside the buffers, at most.
OTHER_KIB = 120


@pytest.fixture(scope="module")
def built() -> Path:
    names = ["bounce_test", "scale_program"]
    return cpp.build("verbs", names, ["plain"]) / "plain/tests/verbs"


def said(*words: str | Path, driver: str = "rxe", **settings: str) -> str:
    """What a program says that succeeds, in a host of its own."""
    guest = Guest([str(word) for word in words], {**os.environ, **settings})
    done = machine.run([guest], Link(driver), timeout_s=400)[0]
    print(done.stdout)
    assert done.status == 0, done.stdout + done.stderr
    return done.stdout


def resources(text: str) -> dict[str, int]:
    """By the words of `rdma resource`."""
    words = text.split()[1:]
    return {name: int(count) for name, count in zip(words[::2], words[1::2])}


def check_queues(found: dict[str, str]) -> None:
    """The program ends where one overruns; no packet met a receive queue that was empty."""
    assert int(found["most_sends_percent"]) <= 100
    assert int(found["most_receives_percent"]) == 100  # posted before the peer may send
    assert int(found["most_completions_percent"]) <= 100
    for counter in ("rcvd_rnr_err", "send_rnr_err", "retry_rnr_exceeded_err"):
        assert int(found[counter]) == 0, counter


def assert_grown(found: dict[str, str]) -> None:
    """On a busy machine a few connections never have a whole window under way, and do not grow."""
    assert BUSY_KIB * 0.9 < int(found["busy_pinned_kib_per_peer"]) <= BUSY_KIB


@pytest.mark.slow
def test_256_peers(built: Path) -> None:
    """All idle, then all with streams, messages and READs at once."""
    found = values(said(built / "scale_program", "peers", str(PEERS)))
    assert int(found["idle_pinned_kib_per_peer"]) == IDLE_KIB
    assert int(found["idle_registrations"]) == PEERS
    assert int(found["idle_resident_kib_per_peer"]) < IDLE_KIB + OTHER_KIB
    assert_grown(found)
    assert int(found["busy_resident_kib_per_peer"]) < BUSY_KIB + OTHER_KIB
    assert int(found["left_pinned_kib"]) == 0
    assert int(found["descriptors_per_peer"]) == 1
    assert (int(found["queue_pairs"]), int(found["completion_queues"])) == (PEERS, 2 * PEERS)
    # Of both processes; the kernel has a queue pair of its own for each device.
    held = resources(found["resources"])
    assert (held["qp"], held["cq"]) == (2 * PEERS + 1, 4 * PEERS + 1)
    # One for each end, and what each process offers.
    assert held["mr"] == 2 * PEERS + 2
    check_queues(found)


@pytest.mark.slow
def test_peers_over_iwarp(built: Path) -> None:
    """The same buffers; librdmacm has an id for each end, and soft-iWARP counts no packets."""
    words = ("peers", str(IWARP_PEERS))
    found = values(said(built / "scale_program", *words, driver="siw"))
    assert int(found["idle_pinned_kib_per_peer"]) == IDLE_KIB
    assert int(found["idle_registrations"]) == IWARP_PEERS
    assert_grown(found)
    assert int(found["left_pinned_kib"]) == 0
    assert int(found["descriptors_per_peer"]) == 1
    held = resources(found["resources"])
    assert (held["qp"], held["cq"]) == (2 * IWARP_PEERS, 4 * IWARP_PEERS)
    assert (held["cm_id"], held["mr"]) == (2 * IWARP_PEERS, 2 * IWARP_PEERS + 2)
    assert int(found["most_sends_percent"]) <= 100
    assert int(found["most_receives_percent"]) == 100
    assert int(found["most_completions_percent"]) <= 100


@pytest.mark.slow
def test_soft_iwarp_ends_at_a_limit_of_its_own(built: Path) -> None:
    """Its library gives no reason; an errno of before must not stand for one."""
    words = [str(built / "scale_program"), "peers", "32"]
    done = machine.run([Guest(words, dict(os.environ))], Link("siw"), timeout_s=400)[0]
    assert done.status != 0
    assert "a completion queue of siw0/1: its library gives no reason" in done.stderr


@pytest.mark.parametrize("depth", few(["1", "16384"], "1"))
def test_the_extremes_of_the_queue_depth(built: Path, depth: str) -> None:
    found = values(said(built / "scale_program", "peers", "4", RDMA_QP_QUEUE_DEPTH=depth))
    assert int(found["idle_pinned_kib_per_peer"]) == IDLE_KIB
    check_queues(found)


def test_a_round_trip_costs_one_event(built: Path) -> None:
    """Of what has come; that a frame was sent wakes nobody."""
    found = values(said(built / "scale_program", "speed"))
    assert float(found["events_per_round_trip"]) < 1.3
    assert float(found["arms_per_round_trip"]) < 1.3
    # Three frames each way, and credits.
    assert float(found["events_per_round_trip_20000"]) < 5


@pytest.mark.slow
def test_reads_into_memory_that_is_not_registered(built: Path) -> None:
    assert said(built / "bounce_test").endswith("ok bounce\n")


@pytest.mark.parametrize("case", ["limited", "none"])
def test_an_ordinary_user_who_may_lock_little(built: Path, case: str) -> None:
    """`none`: not even a connection. `limited`: what is refused is read by way of what is not."""
    assert said(built / "bounce_test", case).endswith("ok bounce\n")
