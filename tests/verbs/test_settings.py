"""The settings by environment, on a Soft-RoCE device: they are taken, or refused by name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from common import cpp
from rdma_host import machine
from rdma_host.machine import ADDRESSES, Guest, Link, Outcome

# The first one waits until all is compiled.
pytestmark = pytest.mark.timeout(900)

PORT = "7472"
BYTES = 8 << 20
#: Soft-RoCE's over an Ethernet of 1500 bytes.
MTU = 1024
#: Says after a command how many packets of IPv6 came to its host.
COUNTS = '"$@"; status=$?; grep Ip6InReceives /proc/net/snmp6; exit $status'
REFUSED = {
    "RDMA_QP_TIMEOUT=32": "it takes a whole number from 0 to 31",
    "RDMA_QP_MTU=1500": "it takes 256, 512, 1024, 2048 or 4096 bytes",
    "RDMA_DEVICE=mlx5_0": "this machine has no such RDMA device, only rxe0",
    "RDMA_DEVICE_PORT=2": "no RDMA device here has such a port",
    "RDMA_GID_INDEX=9": "rxe0/1 has no GID there, only at 0, 1",
    "RDMA_QP_PKEY_INDEX=3": "rxe0/1 has no partition key there, only at 0 to 0",
}


@pytest.fixture(scope="module")
def built() -> Path:
    names = ["read_test", "told_test", "transfer_program"]
    return cpp.build("verbs", names, ["plain"]) / "plain/tests/verbs"


def test_a_wrong_value_is_named_with_its_cure(built: Path) -> None:
    """In the log, once, and in what the program that wanted RDMA is told."""
    script = 'program=$1; shift; for each; do env "$each" "$program"; echo "status $?"; done'
    words = ["bash", "-c", script, "each", str(built / "read_test"), *REFUSED]
    done = machine.run([Guest(words)], Link(), timeout_s=120)[0]
    assert done.stdout == "status 1\n" * len(REFUSED)
    log = [line for line in done.stderr.splitlines() if line.startswith("W ")]
    assert len(log) == len(REFUSED)
    for (setting, why), line in zip(REFUSED.items(), log):
        name = setting.split("=")[0]
        assert line.startswith("W AR-gRPC: no RDMA, TCP is used between hosts: "), line
        assert line.endswith(f"{setting}: {why}; correct it, or unset {name}"), line


def read(built: Path, case: str, **settings: str) -> tuple[dict[str, str], Outcome]:
    """What the reader says; only it has the settings."""
    program = str(built / "transfer_program")
    owner = Guest([program, "owner", PORT, str(BYTES)])
    words = [program, "reader", ADDRESSES[0], PORT, str(BYTES), case]
    reader = Guest(["bash", "-c", COUNTS, "counts", *words], {**os.environ, **settings})
    done = machine.run([owner, reader], Link(), timeout_s=120)
    assert [each.status for each in done] == [0, 0], done
    return dict(line.split(" ", 1) for line in done[1].stdout.splitlines()), done[1]


def test_one_end_makes_the_packets_of_both_smaller(built: Path) -> None:
    """The device counts them. Every other setting has a value, too, that the device can follow."""
    said, outcome = read(
        built,
        "read",
        RDMA_DEVICE="rxe0",
        RDMA_DEVICE_PORT="1",
        RDMA_GID_INDEX=str(machine.GID_INDEX),
        RDMA_QP_PKEY_INDEX="0",
        RDMA_QP_QUEUE_DEPTH="16",
        RDMA_QP_TIMEOUT="17",
        RDMA_QP_RETRY_COUNT="5",
        RDMA_QP_SL="3",
        RDMA_QP_MTU="256",
        RDMA_TRAFFIC_CLASS="96",
    )
    assert (said["wrong"], int(said["get_bytes"])) == ("0", BYTES)
    assert BYTES // 256 <= int(said["rcvd_pkts"]) <= BYTES // 256 * 3
    assert int(said["Ip6InReceives"]) < 100
    line = "I AR-gRPC: RDMA over rxe0/1 (RoCE, 2.5 Gb/s), named by RDMA_DEVICE"
    assert line in outcome.stderr.splitlines()


def test_a_device_is_told_of_them(built: Path) -> None:
    (done,) = machine.run([Guest([str(built / "told_test")])], Link(), timeout_s=120)
    assert (done.stdout, done.status) == ("ok told\n", 0), done


def test_the_named_gid_is_the_way(built: Path) -> None:
    """By IPv6, which both ends have, although both also have IPv4, which is preferred."""
    said, _ = read(built, "read", RDMA_GID_INDEX=str(1 - machine.GID_INDEX))
    assert (said["wrong"], int(said["get_bytes"])) == ("0", BYTES)
    assert int(said["Ip6InReceives"]) >= BYTES // MTU


def test_a_peer_that_is_not_heard_of_is_given_up_sooner(built: Path) -> None:
    said, _ = read(built, "lost", RDMA_QP_TIMEOUT="14", RDMA_QP_RETRY_COUNT="1")
    assert said["status"] == "rxe0/1: transport retry counter exceeded"
    # 67 ms, after what is left of as long since the greeting, whose timer Soft-RoCE lets run on;
    # with the default it is seven times 0.27 s.
    assert 0.06 < float(said["seconds"]) < 1.5
