"""The verbs fabric over Soft-RoCE: in one virtual host, and between two of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from artf_cli import system
from artf_cli.errors import ArtfError
from common import cpp
from rdma_host import machine
from rdma_host.machine import ADDRESSES, Guest, Link, Outcome

# The first one waits until all is compiled.
pytestmark = pytest.mark.timeout(900)

PORT = "7471"
BYTES = 32 << 20
#: Soft-RoCE's over an Ethernet of 1500 bytes.
MTU = 1024
#: Of all bytes, when the reader closes early.
READS = 8
#: Of one READ request, as Soft-RoCE takes them.
LARGEST_READ = 8 << 20
WITHOUT_A_DEVICE = ("frame_test", "send_queue_test")
#: What abi_test.cc compares with; nothing else includes it.
HEADER = Path("/usr/include/infiniband/verbs.h")


def compiled(*names: str) -> Path:
    """The folder with these programs."""
    return cpp.build("verbs", names, ["plain"]) / "plain/tests/verbs"


@pytest.fixture(scope="module")
def built() -> Path:
    """What stands on a device."""
    return compiled(*(name for name in cpp.VERBS if name not in ("abi_test", *WITHOUT_A_DEVICE)))


@pytest.mark.parametrize("name", WITHOUT_A_DEVICE)
def test_what_needs_no_device(name: str) -> None:
    """On this machine, sanitized: a virtual host has no room for AddressSanitizer's shadow."""
    folder = cpp.build("verbs", [name], ["asan+ubsan"])
    assert cpp.run(folder, "asan+ubsan", f"tests/verbs/{name}", 60).startswith("ok ")


@pytest.fixture
def header() -> None:
    """Installed where it can be; else the test skips with the reason, but in CI."""
    if HEADER.exists():
        return
    try:
        system.apt_install("the header that abi_test.cc compares with", ["libibverbs-dev"])
    except ArtfError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


@pytest.mark.usefixtures("header")
def test_the_abi_is_that_of_the_header() -> None:
    """By static assertions; that it compiles is the test."""
    program = compiled("abi_test") / "abi_test"
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ok abi")


def in_one_host(*words: str | Path) -> str:
    """What a program says that succeeds."""
    # Freed memory is overwritten, so that a use of it shows.
    environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.perturb=165"}
    guest = Guest([str(word) for word in words], environment)
    done = machine.run([guest], Link(), timeout_s=300)[0]
    print(done.stdout)
    assert done.status == 0, done.stdout + done.stderr
    return done.stdout


def test_conformance(built: Path) -> None:
    """What fabric.h promises, but for the stream, which verbs has not."""
    assert in_one_host(built / "conformance_test", "verbs").endswith("\n31 cases over verbs\n")


def test_one_process_reads_from_itself(built: Path) -> None:
    assert in_one_host(built / "read_test").count("ok verbs: ") == 17


def test_calls_of_the_library_fail(built: Path) -> None:
    assert in_one_host(built / "failures_test").endswith("\n28 calls failed\n")


@pytest.mark.parametrize(
    ("library", "says"),
    [
        ("/nonexistent/libibverbs.so", "no RDMA library: /nonexistent/libibverbs.so"),
        ("libc.so.6", "libc.so.6 has no ibv_get_device_list of version IBVERBS_1.1"),
    ],
)
def test_a_library_that_is_none(built: Path, library: str, says: str) -> None:
    done = subprocess.run(
        [built / "read_test"], env={"AR_IBVERBS_LIB": library}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert says in done.stderr


def test_a_machine_without_a_device(built: Path) -> None:
    """The virtual hosts have one; what runs them has none, or the test says so."""
    if any(Path("/sys/class/infiniband").glob("*")):
        pytest.skip("this machine has an RDMA device")
    done = subprocess.run([built / "read_test"], env={}, capture_output=True, text=True)
    assert done.returncode == 1
    assert "want code 0 '', got 14 '" in done.stderr


def between_two_hosts(built: Path, case: str, link: Link) -> dict[str, str]:
    """What the reader says of a case."""
    program = str(built / "transfer_program")
    owner = Guest([program, "owner", PORT, str(BYTES)])
    reader = Guest([program, "reader", ADDRESSES[0], PORT, str(BYTES), case])
    done: list[Outcome] = machine.run([owner, reader], link, timeout_s=120)
    assert [each.status for each in done] == [0, 0], done
    print(done[1].stdout)
    return dict(line.split(" ", 1) for line in done[1].stdout.splitlines())


def test_two_hosts(built: Path) -> None:
    """The bytes are right, and it is the device that brought them: its packets say so."""
    said = between_two_hosts(built, "read", Link())
    assert said["wrong"] == "0"
    assert int(said["get_bytes"]) == BYTES
    packets = BYTES // MTU
    # A host that is slow for a moment asks again for a part.
    assert packets <= int(said["rcvd_pkts"]) <= packets * 1.5
    assert BYTES // LARGEST_READ <= int(said["sent_pkts"]) <= packets // 100
    assert said["retry_exceeded_err"] == "0"


def test_two_hosts_over_a_link_that_loses(built: Path) -> None:
    said = between_two_hosts(built, "read", Link(loss_percent=0.1))
    assert (said["wrong"], int(said["get_bytes"])) == ("0", BYTES)
    assert int(said["out_of_seq_request"]) + int(said["completer_retry_err"]) > 0 or (
        int(said["sent_pkts"]) > BYTES // LARGEST_READ
    )


@pytest.mark.parametrize(
    ("case", "delay_ms"),
    [
        # What is on its way arrives after the close.
        ("close-late", 100),
        # What was lost is sent again after the link is whole.
        ("close-lost", 0),
    ],
)
def test_nothing_arrives_after_a_close(built: Path, case: str, delay_ms: int) -> None:
    said = between_two_hosts(built, case, Link(delay_ms=delay_ms))
    assert said["status"] == "the RDMA connection is closed"
    assert LARGEST_READ <= int(said["get_bytes"]) < READS * BYTES
    assert float(said["close_seconds"]) < 1
    assert said["late"] == "0"


def test_a_peer_that_is_not_heard_of(built: Path) -> None:
    said = between_two_hosts(built, "lost", Link())
    assert said["status"] == "rxe0/1: transport retry counter exceeded"
    # Seven times 0.27 s.
    assert 1.5 < float(said["seconds"]) < 10
    assert said["closed"] == "1"
