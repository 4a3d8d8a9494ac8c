"""The fabric of a burst is what the counters prove, and "unknown" where they do not."""

from __future__ import annotations

from typing import Any

from artf_cli.bench.traffic import agreed, carrier


def report(sent: int = 0, received: int = 0, fabric: str = "") -> dict[str, dict[str, Any]]:
    """A ps that sent so many bytes to a worker over TCP, and a worker that got as many by us."""
    ends = {"local": "127.0.0.1:1", "remote": "127.0.0.1:2"}
    other = {"local": "127.0.0.1:2", "remote": "127.0.0.1:1"}
    stray = {"local": "127.0.0.1:1", "remote": "127.0.0.1:9", "inode": 4, "bytes_sent": 10**9}
    fabrics = {"ps:0": fabric} if fabric else {}
    return {
        "ps:0": {
            "connections": [{**ends, "inode": 1, "bytes_sent": sent}, stray],
            "fabrics": {},
            "fabric_bytes_received": 10**9,
        },
        "worker:0": {
            "connections": [{**other, "inode": 2, "bytes_sent": 5}],
            "fabrics": fabrics,
            "fabric_bytes_received": received,
        },
    }


PAIR = [("ps:0", "worker:0")]


def test_tcp_counts_what_the_sender_sent_over_connections_of_the_two() -> None:
    assert carrier(report(sent=100), report(sent=1100), PAIR, 1000) == "tcp"
    assert carrier(report(sent=100), report(sent=1099), PAIR, 1000) == "unknown"
    back = [("worker:0", "ps:0")]
    assert carrier(report(), report(), back, 1) == "unknown"


def test_a_fabric_counts_what_the_receivers_got() -> None:
    before, after = report(received=7, fabric="shm"), report(received=1007, fabric="shm")
    assert carrier(before, after, PAIR, 1000) == "shm"
    assert carrier(before, after, PAIR, 1001) == "unknown"
    # A receiver of two senders counts once.
    twice = {**after, "ps:1": after["ps:0"]}
    twice["worker:0"]["fabrics"]["ps:1"] = "shm"
    assert carrier(before, twice, [*PAIR, ("ps:1", "worker:0")], 1001) == "unknown"


def test_a_classic_channel_counts_what_came_by_it() -> None:
    """Whatever its calls' connection carried meanwhile."""
    before, after = report(), report(sent=2000)
    before["worker:0"]["classic_bytes_received"] = {"mpi": 0, "verbs": 7}
    after["worker:0"]["classic_bytes_received"] = {"mpi": 999, "verbs": 1007}
    assert carrier(before, after, PAIR, 1000) == "verbs"
    assert carrier(before, after, PAIR, 1001) == "tcp"


def test_pairs_over_different_fabrics_are_no_one_fabric() -> None:
    before, after = report(fabric="shm"), report(sent=1000, received=1000, fabric="shm")
    assert carrier(before, after, [*PAIR, ("worker:0", "ps:0")], 1) == "unknown"


def test_a_step_that_moves_nothing_has_no_fabric() -> None:
    assert carrier(report(), report(), PAIR, 0) == "none"


def test_rounds_that_differ_are_all_named() -> None:
    assert agreed(["shm", "shm"]) == "shm"
    assert agreed(["tcp", "shm", "tcp"]) == "shm,tcp"
