"""The verbs fabric over Soft-RoCE and soft-iWARP: in one virtual host, and between two of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from artf_cli import system
from artf_cli.errors import ArtfError
from common import cpp
from common.lacking import cannot_be_had
from common.repeated import few
from common.verbs_programs import TRANSFERS, WITHOUT_A_DEVICE
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
#: What these programs compare with, and its package; nothing else includes it.
HEADERS = {
    "abi_test": (Path("/usr/include/infiniband/verbs.h"), "libibverbs-dev"),
    "rdmacm_abi_test": (Path("/usr/include/rdma/rdma_cma.h"), "librdmacm-dev"),
}
#: Calls of the libraries that failures_test lets fail.
CALLS = {"rxe": 36, "siw": 40}
on_each_driver = pytest.mark.parametrize("driver", machine.DRIVERS)
#: What takes long; over soft-iWARP a plain run has test_conformance, --full all.
mostly_over_rxe = pytest.mark.parametrize("driver", few(machine.DRIVERS, "rxe"))


def compiled(*names: str) -> Path:
    """The folder with these programs."""
    return cpp.build("verbs", names, ["plain"]) / "plain/tests/verbs"


@pytest.fixture(scope="module")
def built() -> Path:
    """What stands on a device."""
    return compiled(*(name for name in cpp.VERBS if name not in (*HEADERS, *WITHOUT_A_DEVICE)))


@pytest.mark.parametrize("name", HEADERS)
def test_the_abi_is_that_of_the_header(name: str) -> None:
    """By static assertions; that it compiles is the test.

    The header is installed where it can be; else the test skips with the reason, but in CI.
    """
    header, package = HEADERS[name]
    if not header.exists():
        try:
            system.apt_install(f"the header that {name}.cc compares with", [package])
        except ArtfError as error:
            cannot_be_had(str(error))
    done = subprocess.run([compiled(name) / name], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ok abi")


def in_one_host(driver: str, *words: str | Path) -> str:
    """What a program says that succeeds."""
    # Freed memory is overwritten, so that a use of it shows.
    environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.perturb=165"}
    guest = Guest([str(word) for word in words], environment)
    done = machine.run([guest], Link(driver), timeout_s=300)[0]
    print(done.stdout)
    assert done.status == 0, done.stdout + done.stderr
    return done.stdout


@on_each_driver
def test_conformance(built: Path, driver: str) -> None:
    """What fabric.h promises."""
    said = in_one_host(driver, built / "conformance_test", "verbs")
    assert said.endswith("\n42 cases over verbs\n")


@mostly_over_rxe
def test_transfers_of_grpc_verbs(built: Path, driver: str) -> None:
    """What the classic channel does with it: writes, notes, what is held, cancels, ends."""
    said = in_one_host(driver, built / "link_test", "verbs").splitlines()
    assert said == [*(f"verbs: {case}" for case in TRANSFERS), "ok link_test"]


@mostly_over_rxe
@pytest.mark.slow
def test_one_process_reads_from_itself(built: Path, driver: str) -> None:
    assert in_one_host(driver, built / "read_test").count("ok verbs: ") == 17


@mostly_over_rxe
@pytest.mark.slow
def test_calls_of_the_libraries_fail(built: Path, driver: str) -> None:
    said = in_one_host(driver, built / "failures_test")
    assert said.endswith(f"\n{CALLS[driver]} calls failed\n")


@on_each_driver
@pytest.mark.parametrize(
    ("served", "depth", "most"), few([(12, None, 12), (4, None, 4), (12, "1", 1)], (4, None, 4))
)
def test_no_more_reads_at_once_than_the_peer_serves_or_one_asks_for(
    built: Path, driver: str, served: int, depth: str | None, most: int
) -> None:
    setting = [] if depth is None else [f"RDMA_QP_QUEUE_DEPTH={depth}"]
    program = built / "read_depth_test"
    assert (
        in_one_host(driver, "env", *setting, program, str(served), str(most)) == "ok read depth\n"
    )


def test_what_holds_over_iwarp_alone(built: Path) -> None:
    """Who is let in, and what a peer may write."""
    assert in_one_host("siw", built / "iwarp_test").count("ok iwarp: ") == 4


def test_iwarp_over_ipv6(built: Path) -> None:
    """Where the network device has no other address."""
    script = (
        "ip address add fd00::1/64 dev veth0 nodad && "
        f"ip address del {ADDRESSES[0]}/24 dev veth0 && "
        'exec "$0" "both ends read"'
    )
    said = in_one_host("siw", "bash", "-c", script, built / "read_test")
    assert said.count("ok verbs: ") == 1


@pytest.mark.parametrize(
    ("library", "says"),
    [
        ("/nonexistent/librdmacm.so", "siw0/1: no RDMA library: /nonexistent/librdmacm.so"),
        ("libc.so.6", "siw0/1: libc.so.6 has no rdma_create_event_channel of version RDMACM_1.0"),
    ],
)
def test_iwarp_without_librdmacm(built: Path, library: str, says: str) -> None:
    """Such a device is not used, and the words say what to install."""
    guest = Guest([str(built / "read_test")], {"AR_RDMACM_LIB": library})
    done = machine.run([guest], Link("siw"), timeout_s=60)[0]
    assert done.status == 1
    assert f"no RDMA device can be used: {says}" in done.stderr


def test_roce_does_without_librdmacm(built: Path) -> None:
    """It is not even looked for."""
    guest = Guest([str(built / "read_test"), "both ends read"], {"LD_DEBUG": "files"})
    done = machine.run([guest], Link("rxe"), timeout_s=60)[0]
    assert (done.status, done.stdout.count("ok verbs: ")) == (0, 1), done
    assert "file=libibverbs.so.1 [0];  dynamically loaded by" in done.stderr
    assert "librdmacm" not in done.stderr


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
    assert packets <= int(said["rcvd_pkts"]) <= packets * 3
    assert BYTES // LARGEST_READ <= int(said["sent_pkts"]) <= packets // 100
    assert said["retry_exceeded_err"] == "0"


def test_two_hosts_over_iwarp(built: Path) -> None:
    """Soft-iWARP counts nothing; what came to the network device is the bytes and some headers."""
    said = between_two_hosts(built, "read", Link("siw"))
    assert (said["wrong"], int(said["get_bytes"])) == ("0", BYTES)
    assert BYTES < int(said["rx_bytes"]) < BYTES * 1.2
    # Requests and acknowledgements.
    assert int(said["tx_bytes"]) < BYTES / 10


@mostly_over_rxe
@pytest.mark.slow
def test_two_hosts_over_a_link_that_loses(built: Path, driver: str) -> None:
    said = between_two_hosts(built, "read", Link(driver, loss_percent=0.1))
    assert (said["wrong"], int(said["get_bytes"])) == ("0", BYTES)
    if driver == "siw":
        return  # the kernel's TCP has sent again what was lost
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
@mostly_over_rxe
def test_nothing_arrives_after_a_close(built: Path, driver: str, case: str, delay_ms: int) -> None:
    said = between_two_hosts(built, case, Link(driver, delay_ms=delay_ms))
    assert said["status"] == "the RDMA connection is closed by this end"
    assert LARGEST_READ <= int(said["get_bytes"]) < READS * BYTES
    # What was to be read would take 1.9 s to fail, and is not waited for.
    assert float(said["close_seconds"]) < 5
    assert said["late"] == "0"


def test_nothing_arrives_after_a_transfer_was_cancelled(built: Path) -> None:
    """Amid a READ, while all is lost; the same connection goes on when the link is whole."""
    said = between_two_hosts(built, "cancel", Link())
    assert said["status"] == "the transfer was cancelled"
    # The device would give up after seven times 0.27 s.
    assert float(said["cancel_seconds"]) < 1
    assert (said["late"], said["closed"]) == ("0", "0")
    # What was asked for before the cancel came all the same, to memory that is not the caller's.
    assert LARGEST_READ <= int(said["get_bytes"]) <= BYTES


@mostly_over_rxe
def test_transfers_as_over_the_other_fabrics(built: Path, driver: str) -> None:
    """Those of tests/units: every size in every way; cancelled, cut, many at once."""
    assert in_one_host(driver, built / "receiver_test").count("ok receiver: ") == 4


def test_a_peer_that_is_not_heard_of(built: Path) -> None:
    said = between_two_hosts(built, "lost", Link())
    assert said["status"] == "rxe0/1: transport retry counter exceeded"
    # Seven times 0.27 s.
    assert 1.5 < float(said["seconds"]) < 10
    assert said["closed"] == "1"


def test_a_frame_that_is_not_heard_of(built: Path) -> None:
    """What a frame has failed with is known though no completion of it was asked for."""
    said = between_two_hosts(built, "lost-frame", Link())
    assert said["status"].endswith("rxe0/1: transport retry counter exceeded")
    assert 1.5 < float(said["seconds"]) < 10
