"""Attacks over plain HTTP/2: what they cost the server is bounded, and the next step works.

A peer that is attached over a fabric speaks the same HTTP/2 in its ring. What each attack cost
before the patches that mend it, and what it costs stock `grpc`, is in docs/measured.md. The bounds
on headers, padding, announced frames and single bytes are ones that the unpatched build broke;
those on resets, odd headers and headers in pieces it kept, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from common.ar import settle
from common.instrumented import INSTRUMENTED
from common.processes import Cluster, run_program
from common.sessions import On, check

pytestmark = pytest.mark.timeout(180)

PS, WORKER = "ps:0", "worker:0"
MIB = 2**20
PEER = Path(__file__).resolve().parents[2] / "scripts/artf_cli/runtime/hostile_peer.py"
RESOURCE_EXHAUSTED = 8
# What a server of any kind spends on a connection, and what its threads do beside it.
CONNECTION_CPU, CONNECTION_BYTES = 0.05, 3 * MIB
KEPT_BYTES = 24 * MIB  # malloc gives back late


@pytest.fixture
def fabric() -> str:
    return "shm"


def resident(pid: int, field: str = "VmRSS") -> int:
    """Bytes of memory in use, or with VmHWM the most since `forget_peak`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024


def forget_peak(pid: int) -> None:
    """VmHWM begins again at what is in use now (Linux's proc_pid_clear_refs)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def cpu_seconds(pid: int) -> float:
    """Of all threads, those that ended too, to the nanosecond (clock_getcpuclockid)."""
    return time.clock_gettime((~pid << 3) | 2)


@dataclass
class Cost:
    """What an attack took of the server."""

    cpu_s: float = 0.0
    peak: int = 0  # bytes of memory above what was in use before

    def check(self, *, cpu_s: float = math.inf, peak: float = math.inf) -> None:
        """Asserts that it is below, where no sanitizer takes CPU and memory beside it."""
        if not INSTRUMENTED:
            limits = f"limits: {cpu_s} s, {peak} bytes"
            assert self.cpu_s < cpu_s and self.peak < peak, f"{self}, {limits}"


@contextmanager
def cost(cluster: Cluster) -> Iterator[Cost]:
    pid = cluster[PS].pid
    spent = Cost()
    forget_peak(pid)
    before, began = resident(pid), cpu_seconds(pid)
    yield spent
    spent.cpu_s = cpu_seconds(pid) - began
    spent.peak = resident(pid, "VmHWM") - before


def attack(cluster: Cluster, name: str, size: int) -> dict[str, Any]:
    settings = {"address": cluster.spec["ps"][0], "attack": name, "size": size}
    outcome: dict[str, Any] = run_program(PEER, settings, seconds=150).result()
    return outcome


def transfer(on: On) -> tuple[dict[str, Any], dict[Any, Any]]:
    """An honest step: a tensor goes from the attacked server to the other one."""
    fed = tf.compat.v1.placeholder(tf.int64, [])
    with on(PS):
        sent = tf.range(fed)
    with on(WORKER):
        total = tf.reduce_sum(sent)
    return {"total": total}, {fed: 100000}


@pytest.fixture
def attacked(pair: Cluster) -> Iterator[Cluster]:
    """The pair, warm; afterwards its steps are right and its memory is where it was."""
    check(pair, transfer, [(PS, WORKER)])
    attack(pair, "control", 16 * MIB)
    before = resident(pair[PS].pid)
    yield pair
    check(pair, transfer, [(PS, WORKER)])
    settle(before + KEPT_BYTES, resident, pair[PS].pid)


def test_long_header(attacked: Cluster) -> None:
    """16 MiB in one header cost less than 16 MiB that are skipped: the length is enough."""
    with cost(attacked) as skipped:
        assert not attack(attacked, "control", 16 * MIB)["closed"]
    with cost(attacked) as spent:
        assert attack(attacked, "header", 16 * MIB)["closed"]
    spent.check(cpu_s=skipped.cpu_s + CONNECTION_CPU, peak=CONNECTION_BYTES)


def test_padded_integer(attacked: Cluster) -> None:
    with cost(attacked) as spent:
        assert attack(attacked, "padding", MIB)["closed"]
    spent.check(cpu_s=CONNECTION_CPU, peak=CONNECTION_BYTES)


def test_endless_headers(attacked: Cluster) -> None:
    """They end at the limit of one request, however many frames they are spread over."""
    with cost(attacked) as spent:
        assert attack(attacked, "continuation", 8 * MIB)["closed"]
    spent.check(cpu_s=CONNECTION_CPU, peak=CONNECTION_BYTES)


def test_headers_in_pieces(attacked: Cluster) -> None:
    """Of an honest call, below the limit and in as many frames as bytes: it is served."""
    outcome = attack(attacked, "pieces", 7000)
    assert (outcome["status"], outcome["closed"]) == (0, False)


def test_frame_that_announces_too_much(attacked: Cluster) -> None:
    """Nothing is allocated for it; where memory is overwritten, that would be touched."""
    with cost(attacked) as spent:
        assert attack(attacked, "announced", 16 * MIB - 1)["closed"]
    spent.check(peak=CONNECTION_BYTES)


def test_message_in_single_bytes(attacked: Cluster) -> None:
    """A byte of a message takes a few bytes, not 41."""
    size = 400_000
    with cost(attacked) as spent:
        outcome = attack(attacked, "fragments", size)
    assert not outcome["closed"] and outcome["sent"] > 10 * size
    spent.check(peak=8 * size + CONNECTION_BYTES)


def test_resets(pair: Cluster) -> None:
    """Rapid reset (CVE-2023-44487) costs what calls cost that are begun, if all at once."""
    size = 20_000
    check(pair, transfer, [(PS, WORKER)])
    with cost(pair) as spent:
        assert not attack(pair, "resets", size)["closed"]
    spent.check(cpu_s=200e-6 * size, peak=10_000 * size)
    check(pair, transfer, [(PS, WORKER)])


@pytest.mark.parametrize("name", ["words", "base64"])
def test_odd_headers(attacked: Cluster, name: str) -> None:
    """They end their own connection and nothing else (CVE-2023-1428, CVE-2023-32732)."""
    link = attacked[WORKER].status()["links"]
    assert attack(attacked, name, 9000)["closed"]
    assert attacked[WORKER].status()["links"] == link > 0


def test_inflated_messages_are_given_back(attacked: Cluster) -> None:
    """100 KB each, and the memory of none of them stays: `attacked` looks."""
    for _ in range(5):
        outcome = attack(attacked, "bomb", 100 * MIB)
        assert outcome["sent"] < 200_000 and not outcome["closed"]
        assert outcome["status"] not in (0, RESOURCE_EXHAUSTED)  # 100 MiB of no request


@pytest.mark.slow
def test_compressed_bomb(attacked: Cluster) -> None:
    """3 GiB of zeros come in 3 MB; inflating ends at the 2 GiB that a message may have."""
    with cost(attacked) as spent:
        outcome = attack(attacked, "bomb", 3 << 30)
    assert outcome["sent"] < 4e6
    assert outcome["status"] == RESOURCE_EXHAUSTED
    spent.check(peak=2.3 * 2**30)


@pytest.mark.slow
def test_million_single_bytes(attacked: Cluster) -> None:
    with cost(attacked) as spent:
        assert not attack(attacked, "fragments", 1_000_000)["closed"]
    spent.check(cpu_s=5, peak=8_000_000 + CONNECTION_BYTES)
