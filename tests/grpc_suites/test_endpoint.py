"""gRPC's own endpoint tests over the AR endpoint, each case or run of cases in its own process.

The programs are linked from the library's own objects (`//build:grpc_suites`); of the sanitized one
our code and the tests are instrumented, gRPC is not.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

FABRICS = ("loopback", "shm", "rings")
POLLERS = {
    "poll": {"GRPC_POLL_STRATEGY": "poll", "AR_GRPC_SPIN_US": "0"},
    "spinning poll": {"GRPC_POLL_STRATEGY": "poll", "AR_GRPC_SPIN_US": "100"},
    "epoll1": {"GRPC_POLL_STRATEGY": "epoll1"},
}
PROGRAMS = ("ar_endpoint_test", "ar_endpoint_test_sanitized")
# Of tests/grpc_suites/contract.cc.
CASES = (
    "shutdown",
    "destroy",
    "slices",
    "last-words",
    "full",
    "tcp-end",
    "tcp-bytes",
    "keep-alive",
    "releases",
    "last-releases",
    "batched-releases",
    "share",
    "both-ways",
    "race",
)
# Of tests/grpc_suites/shared_connection.cc.
SHARED = ("shared-rest", "shared-stuck", "shared-pair", "shared-crowd", "shared-accepted")
SECONDS = 300
RING = 1 << 20


def run(
    program: str, *arguments: str, poller: str, settings: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """The program's lines, when it ends in time and in order; else a failure names the case."""
    path = Path(os.environ["ARTF_GRPC_SUITES"]) / program
    env = {**os.environ, **POLLERS[poller], **settings}
    with subprocess.Popen(
        [str(path), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as child:
        try:
            out, err = child.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
            err += f"no end in {SECONDS} s"
    lines = out.splitlines()
    case = [line for line in lines if re.match(r"\w+_test/|num_bytes=|Start ", line)][-3:]
    what = " ".join([program, *arguments, *case])
    assert child.returncode == 0, f"exit {child.returncode}: {what}\n{err[-6000:]}"
    assert lines[-1] == "gRPC is shut down"
    return lines


def endpoint_cases() -> list[tuple[int, ...]]:
    """What endpoint_tests.cc goes through: bytes, bytes a write, bytes a slice, shut down."""
    cases: list[tuple[int, ...]] = []
    for _ in range(5):
        cases += [(10**7, 10**5, 8192, 0), (10**6, 10**5, 1, 0), (10**8, 10**5, 1, 1)]
    size = 1
    while size < 1000:
        cases.append((40320, size, size, 0))
        size = max(size + 1, size * 5 // 4)
    return cases


def check_endpoint_cases(lines: list[str], name: str) -> None:
    """All of upstream's cases ran, in order, and each ended at both ends."""
    said = r"num_bytes=(\d+) write_size=(\d+) slice_size=(\d+) shutdown=(\d)"
    found = [re.fullmatch(said, line) for line in lines]
    cases = endpoint_cases()
    assert [tuple(map(int, match.groups())) for match in found if match] == cases
    count = Counter(lines)
    assert count[f"multiple_shutdown_test/{name}"] == 1
    for line in (f"read_and_write_test/{name}", "Read handler done", "Write handler done"):
        assert count[line] == len(cases), line


@pytest.mark.parametrize("poller", POLLERS)
@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_upstream_cases(program: str, fabric: str, poller: str) -> None:
    lines = run(program, fabric, "upstream", poller=poller)
    check_endpoint_cases(lines, fabric)
    # The bytes went over the fabric; what was under way at a shutdown is in the ring at most.
    last = re.fullmatch(r"sent=(\d+) received=(\d+) links=(\d+)", lines[-2])
    assert last, lines[-2]
    sent, received, links = map(int, last.groups())
    whole = [case[0] for case in endpoint_cases() if not case[3]]
    shut_down = len(endpoint_cases()) - len(whole)
    assert sum(whole) <= received <= sent <= sum(whole) + shut_down * RING
    assert links == 0
    # No pair of ends leaves a descriptor behind.
    open_before = [int(line.split("=")[1]) for line in lines if line.startswith("descriptors=")]
    assert len(open_before) == 1 + len(endpoint_cases())
    assert max(open_before[2:]) - min(open_before[2:]) <= 1, open_before


@pytest.mark.parametrize("poller", POLLERS)
@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("case", CASES)
def test_contract(case: str, program: str, fabric: str, poller: str) -> None:
    """What an endpoint promises and upstream's cases leave out."""
    lines = run(program, fabric, case, poller=poller)
    assert f"ok {case} over {fabric}" in lines
    assert lines[-2].endswith(" links=0")


@pytest.mark.parametrize("poller", POLLERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_on_and_off_beside_each_other(program: str, poller: str) -> None:
    """A channel or server without AR-gRPC says no hello, whatever others of the process do."""
    assert "ok switch over shm" in run(program, "shm", "switch", poller=poller)


@pytest.mark.parametrize("poller", POLLERS)
@pytest.mark.parametrize("case", ["late-frames", "left-open", "last-stream"])
def test_the_end_of_a_drained_connection(case: str, poller: str) -> None:
    """It loses no response (patches/grpc/0017) and serves no stream too many (0016)."""
    assert f"ok {case}" in run(PROGRAMS[0], "shm", case, poller=poller)


@pytest.mark.parametrize("poller", POLLERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_function_that_runs_later_on_a_queue(program: str, poller: str) -> None:
    """The queue that it may begin calls on does not end before (grpc/queue_timer.h)."""
    assert "ok queue-timer" in run(program, "shm", "queue-timer", poller=poller)


@pytest.mark.parametrize("poller", POLLERS)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("case", SHARED)
def test_queues_that_share_a_connection(case: str, program: str, poller: str) -> None:
    """Who has no call is not woken (patches/grpc/0019), who has one never waits for another."""
    # Else it would look after a call that nobody polls for.
    no_backup = {"GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS": "0"}
    assert f"ok {case}" in run(program, "shm", case, poller=poller, settings=no_backup)


@pytest.mark.parametrize("program", PROGRAMS)
def test_generators_are_seeded(program: str) -> None:
    """gRPC's own generators are not there (patches/grpc/0001): ours do not draw alike."""
    assert "ok seeds" in run(program, "shm", "seeds", poller="poll")


@pytest.mark.parametrize("poller", POLLERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_fabrics_of_one_channel(program: str, poller: str) -> None:
    """`grpc.ar.fabrics` narrows what one channel or server may use, beside others of its node."""
    assert "ok fabrics over shm" in run(program, "shm", "fabrics", poller=poller)


@pytest.mark.parametrize("program", PROGRAMS)
def test_fabrics_under_tls(program: str) -> None:
    """What TLS does not cover is used under it only where it is named."""
    assert "ok tls over shm" in run(program, "shm", "tls", poller="poll")


@pytest.mark.parametrize("poller", POLLERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_ends_in_the_handshake(program: str, poller: str) -> None:
    """A channel or server that goes at any point of a handshake leaves nothing behind."""
    lines = run(program, "shm", "ends", poller=poller)
    assert "ok ends over shm" in lines and lines[-2].endswith(" links=0")


@pytest.mark.parametrize("poller", POLLERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_reactors_thread_writes_nothing_to_tcp(program: str, poller: str) -> None:
    assert "ok reactor over shm" in run(program, "shm", "reactor", poller=poller)


@pytest.mark.parametrize("poller", POLLERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_handshakes_beside_a_reactor_that_stands_still(program: str, poller: str) -> None:
    """They keep their deadlines and end, and other channels see nothing of it."""
    assert "ok standing over shm" in run(program, "shm", "standing", poller=poller)


@pytest.mark.parametrize("poller", POLLERS)
def test_tcp(poller: str) -> None:
    """The control: upstream's own program over its own endpoint."""
    lines = run("tcp_posix_test", poller=poller)
    check_endpoint_cases(lines, "tcp/tcp_socketpair")
    starts = Counter(re.sub(r"\d+", "N", line) for line in lines)
    sizes = sum(1 for case in endpoint_cases() if case[0] == 40320)
    assert starts["Read test of size N, slice size N"] == 4 * 14
    assert starts["Start large read test, slice size N"] == 2 * 14
    # Once more with timestamps, where the poller gives them.
    writes = (5 + sizes) * (2 if poller == "epoll1" else 1)
    assert starts["Start write test with N bytes, slice size N"] == writes
    assert starts["Release fd read_test of size N, slice size N"] == 1


def test_a_wrong_argument_is_refused() -> None:
    path = Path(os.environ["ARTF_GRPC_SUITES"]) / PROGRAMS[0]
    for arguments in ([], ["shm"], ["shm", "no-such-case"], ["no-such-fabric", "upstream"]):
        done = subprocess.run([str(path), *arguments], capture_output=True, timeout=SECONDS)
        assert (done.returncode, b"usage" in done.stderr) == (2, True), arguments
