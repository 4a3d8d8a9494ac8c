"""What happens to one end of verbs when the other one, its host or the link between them fails."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from common import cpp
from common.repeated import few
from common.said import values
from rdma_host import machine
from rdma_host.fault_times import FaultTimes
from rdma_host.machine import ADDRESSES, Guest, Link

# The first one waits until all is compiled.
pytestmark = pytest.mark.timeout(900)

PORT = 7471
#: Where a peer dies (dying_program.cc), by the end of the attachment that survives.
POINTS = ("met", "began", "answered", "made", "reading", "read", "streaming")
ENDS = ("server", "client")
CLOSED = "the RDMA connection is closed by this end"
#: What an end over soft-iWARP hears of the other one's process before TCP says so.
GONE = (
    "siw0/1: the peer's end has gone, or it has refused an access",
    "siw0/1: invalid request local work queue error",
)
#: What keep_alive.h says: the first probe's silence, and all of them.
KEEP_ALIVE_S = (10, 25)
GUEST = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.perturb=165"}

#: Over soft-iWARP the same again, where the kernel decides other things.
on_each_driver = pytest.mark.parametrize(
    "driver", ["rxe", pytest.param("siw", marks=pytest.mark.slow)]
)


@pytest.fixture(scope="module")
def built() -> Path:
    names = (
        "completions_test",
        "dying_program",
        "events_test",
        "forking_program",
        "hostile_peer_test",
        "impaired_program",
        "removal_program",
    )
    return cpp.build("verbs", names, ["plain"]) / "plain/tests/verbs"


def shell(*commands: str) -> Guest:
    return Guest(["bash", "-c", "\n".join(commands)], GUEST)


def each_survivor(text: str) -> dict[tuple[str, str], dict[str, str]]:
    """What the survivors say, by their end and the point at which the other one died."""
    found = {}
    for part in text.split("== ")[1:]:
        head, _, rest = part.partition("\n")
        end, point = head.split()
        found[end, point] = values(rest)
    return found


def is_over(said: str, driver: str) -> bool:
    return said == CLOSED or (driver == "siw" and any(said.endswith(each) for each in GONE))


def check_survivors(text: str, driver: str) -> None:
    said = each_survivor(text)
    assert list(said) == [(end, point) for end in ENDS for point in POINTS]
    for (end, point), says in said.items():
        print(end, point, says)
        # Nothing is held that was not before, and the next connection works.
        assert (says["next"], says["rc"]) == ("ok", "0")
        # A client is connected only when the server has said so, and a server when the client's
        # greeting has come, which over iWARP is sent with the client's answer.
        unanswered = ("met", "began") if (driver, end) == ("siw", "server") else POINTS[:3]
        connected = point not in unanswered
        assert says["made"] == str(int(connected))
        assert ("after" in says) == connected and is_over(says.get("after", CLOSED), driver)
        if point == "read":
            assert is_over(says["read"], driver)
        # Half a second in which the peer could have been told; that it is dead is not known yet.
        assert float(says["close_seconds"]) < 5
        assert float(says["quiet_seconds"]) < 10


def survivors(program: Path) -> list[str]:
    lines = []
    for number, (end, point) in enumerate((end, point) for end in ENDS for point in POINTS):
        words = f"{program} survivor {PORT + number} {end} {point}"
        lines.append(f"echo '== {end} {point}'; {words}; echo rc $?")
    return lines


def victims(program: Path, host: str) -> list[str]:
    points = enumerate((end, point) for end in ENDS for point in POINTS)
    return [f"{program} victim {host} {PORT + i} {end} {point}" for i, (end, point) in points]


@on_each_driver
@pytest.mark.slow
def test_a_process_dies_beside_the_other(built: Path, driver: str, fault_times: FaultTimes) -> None:
    """Killed at each point of an attachment and of a transfer; both have the same device."""
    program = built / "dying_program"
    lines = ["(", *victims(program, "127.0.0.1"), ") >/tmp/victims 2>/dev/null &"]
    lines += [*survivors(program), "wait", "echo '== of victims'; cat /tmp/victims"]
    (done,) = machine.run([shell(*lines)], Link(driver), timeout_s=400)
    assert done.status == 0, done.stdout + done.stderr
    survivors_said, _, victims_said = done.stdout.partition("== of victims\n")
    check_survivors(survivors_said, driver)
    killed = [float(line.split()[1]) for line in victims_said.splitlines() if "killed_at" in line]
    says = each_survivor(survivors_said)
    assert len(killed) == len(says)
    for points, when in ((POINTS[:3], "before its end is connected"), (POINTS[3:], "after that")):
        of = [(each, at) for (key, each), at in zip(says.items(), killed) if key[1] in points]
        fault = f"the peer's process is killed, {when}"
        heard = [float(each["heard_at"]) - at for each, at in of]
        assert all(0 < each < 2 for each in heard)
        fault_times.add(fault, driver, "this end hears of it", *heard)
        quiet = [each["quiet_seconds"] for each, _ in of]
        fault_times.add(fault, driver, "nothing is left of the connection, from then on", *quiet)


@on_each_driver
def test_a_child_holds_no_queue_pair(built: Path, driver: str) -> None:
    """One that lives on when its parent is killed: nothing of the parent's device is left."""
    lines = [
        "rdma resource show",
        f"{built / 'forking_program'} >/tmp/child; child=$(cat /tmp/child)",
        "for try in $(seq 50); do",
        "rdma resource show | grep -q ' qp [2-9]' || break; sleep 0.1; done",
        'rdma resource show; kill -0 "$child" && echo "child lives"; kill -9 "$child"',
    ]
    (done,) = machine.run([shell(*lines)], Link(driver), timeout_s=100)
    before, after, child = done.stdout.splitlines()
    held = re.compile(r"\b(?:cq|qp|mr) \d+")
    assert held.findall(after) == held.findall(before) and len(held.findall(after)) == 3, done
    assert child == "child lives"


# A minute, of which most is booting; beside the other the same points are gone through.
@pytest.mark.slow
def test_a_process_dies_on_another_host(built: Path) -> None:
    program = built / "dying_program"
    guests = [shell(*survivors(program)), shell(*victims(program, ADDRESSES[0]), "true")]
    done = machine.run(guests, Link(), timeout_s=400)
    assert [each.status for each in done] == [0, 0], done
    check_survivors(done[0].stdout, "rxe")


def waits_for_a_dead_host(
    program: Path, environment: dict[str, str], driver: str = "rxe"
) -> dict[str, str]:
    """What an end says that only waits while the other one's host loses its power."""
    survivor = Guest([str(program), "survivor", str(PORT), "server", "silent"], environment)
    victim = Guest([str(program), "victim", ADDRESSES[0], str(PORT), "server", "silent"], GUEST)
    with machine.boot([survivor, victim], Link(driver)) as machines:
        limit = time.monotonic() + 200
        while "waiting" not in machines[0].output("stdout"):
            assert time.monotonic() < limit, [each.output("stderr") for each in machines]
            time.sleep(0.1)
        machines[1].kill()
        while not machines[0].ended():
            assert time.monotonic() < limit, machines[0].output("stdout")
            time.sleep(0.1)
        done = machines[0].outcome()
    print(done.stdout)
    assert done.status == 0, done.stdout + done.stderr
    return values(done.stdout)


@on_each_driver
@pytest.mark.slow
def test_a_host_dies_without_a_word(built: Path, driver: str, fault_times: FaultTimes) -> None:
    """Nothing comes from it, and nothing is sent to it: TCP's keep-alive tells."""
    said = waits_for_a_dead_host(built / "dying_program", GUEST, driver)
    assert (said["heard_of"], said["tcp"]) == ("tcp", "Connection timed out")
    shortest, longest = KEEP_ALIVE_S
    assert shortest < float(said["waited_seconds"]) < longest + 2
    assert (said["after"], said["next"]) == (CLOSED, "ok")
    fault = "the peer's host loses its power while this end only waits"
    fault_times.add(fault, driver, said["tcp"], said["waited_seconds"])


@pytest.mark.slow
def test_without_keep_alive_nobody_hears_of_it(built: Path) -> None:
    """The control: for a minute at least."""
    environment = {**GUEST, "WITHOUT_KEEP_ALIVE": "1"}
    said = waits_for_a_dead_host(built / "dying_program", environment)
    assert said["heard_of"] == "nothing"
    assert float(said["waited_seconds"]) > 59


#: Status codes of base/status.h.
OK, UNAVAILABLE = "0", "14"
#: Bytes of a stream each way, and a sixteenth of them in one READ.
MUCH, LITTLE = 16_000_000, 500_000
#: Seven times 0.27 s without an answer, and what a slow host adds.
RETRIES_S = (1.5, 6)
RETRIES = "the RDMA connection has failed: rxe0/1: transport retry counter exceeded."
STOP_S = 5
CUT_LONG = "the link is cut for 8 s"
ADDRESS = "the address goes away for 8 s, and with it the GID"


def exchange(
    built: Path, case: str, size: int, link: Link, guest: Mapping[str, str] = GUEST
) -> list[dict[str, str]]:
    """What two hosts say that stream to each other and read each other's memory."""
    program = str(built / "impaired_program")
    first = Guest([program, "first", str(PORT), str(size), case], guest)
    second = Guest([program, "second", ADDRESSES[0], str(PORT), str(size), case], guest)
    done = machine.run([first, second], link, timeout_s=200)
    for outcome in done:
        print(outcome.stdout, outcome.stderr)
    assert [outcome.status for outcome in done] == [0, 0]
    said = [values(outcome.stdout) for outcome in done]
    for each in said:
        # Whatever happened, what came was right, and the next connection works.
        assert (each["wrong"], each.get("read_wrong", "0"), each["next"]) == ("0", "0", "ok")
    return said


def check_whole(said: list[dict[str, str]], size: int) -> None:
    for each in said:
        assert (each["code"], each["closed"]) == (OK, "0")
        assert (int(each["sent"]), int(each["received"])) == (size, size)
        assert each.get("read_code", OK) == OK


def add_stalls(times: FaultTimes, fault: str, driver: str, said: list[dict[str, str]]) -> None:
    """What both ends said of a stream that a fault has held up, and not ended."""
    stalls = [each["stall_seconds"] for each in said]
    times.add(fault, driver, "it goes on; the longest time without a byte", *stalls)


#: How many bytes go over a link that does this.
LINKS = {
    "whole": (MUCH, Link()),
    "loses 1 %": (2 * LITTLE, Link(loss_percent=1)),
    "loses 5 %": (LITTLE, Link(loss_percent=5)),
    "delays by 50 ms": (4_000_000, Link(delay_ms=50)),
    # What overtakes others is out of order, and all is sent again from there, slowly.
    "reorders 25 %": (LITTLE, Link(delay_ms=10, reorder_percent=25)),
}


@pytest.mark.parametrize("case", few(LINKS, "loses 5 %", "delays by 50 ms"))
@on_each_driver
def test_a_link_that(built: Path, driver: str, case: str, fault_times: FaultTimes) -> None:
    size, link = LINKS[case]
    said = exchange(built, "whole", size, replace(link, driver=driver))
    check_whole(said, size)
    assert all(int(each["reads"]) > 0 for each in said)
    # It did lose, or change the order: the devices had to send again; over iWARP TCP had to.
    if driver == "rxe" and (link.loss_percent or link.reorder_percent):
        assert sum(int(each["again"]) for each in said) > 0
    fault = "none, for comparison" if case == "whole" else f"the link {case}"
    add_stalls(fault_times, fault, driver, said)


@on_each_driver
@pytest.mark.slow
def test_a_link_cut_for_a_second(built: Path, driver: str, fault_times: FaultTimes) -> None:
    """Less than the retries take: it goes on. They take 7.5 s here, since what cuts the link and
    mends it are processes of slow hosts."""
    said = exchange(built, "cut-1", MUCH, Link(driver), {**GUEST, "RDMA_QP_TIMEOUT": "18"})
    check_whole(said, MUCH)
    assert all(1 < float(each["stall_seconds"]) < 10 for each in said)
    add_stalls(fault_times, "the link is cut for 1 s", driver, said)


@pytest.mark.slow
def test_a_link_cut_for_longer(built: Path, fault_times: FaultTimes) -> None:
    """Both ends hear of it from their own devices, and connect again when it is back."""
    said = exchange(built, "cut-8", MUCH, Link())
    shortest, longest = RETRIES_S
    for each in said:
        assert (each["code"], each["closed"]) == (UNAVAILABLE, "1")
        assert each["status"] == RETRIES
        assert each["read_code"] == UNAVAILABLE
    assert shortest < float(said[1]["since_fault"]) < longest
    fault_times.add(CUT_LONG, "rxe", RETRIES, said[1]["since_fault"])


@pytest.mark.slow
@pytest.mark.parametrize("case", ["cut-8", "address"])
def test_what_tcp_under_iwarp_outlives(built: Path, case: str, fault_times: FaultTimes) -> None:
    """Its kernel sends again for minutes: what ends RoCE's connections holds up iWARP's alone."""
    said = exchange(built, case, MUCH, Link("siw"))
    check_whole(said, MUCH)
    assert all(8 < float(each["stall_seconds"]) < 30 for each in said)
    add_stalls(fault_times, {"cut-8": CUT_LONG, "address": ADDRESS}[case], "siw", said)


@pytest.mark.slow
def test_an_address_that_goes_away(built: Path, fault_times: FaultTimes) -> None:
    """The device's GID goes with it: that end fails at once, the other end later.

    The next connection works when the address is back. Soft-RoCE may say so itself, of what was
    sent next; where a READ was waiting for its answer, the device's event alone tells.
    """
    said = exchange(built, "address", MUCH, Link())
    assert [each["code"] for each in said] == [UNAVAILABLE, UNAVAILABLE]
    failed = "the RDMA connection has failed: rxe0/1: "
    gone = (f"its address {ADDRESSES[1]} has gone.", "local QP operation error.")
    assert said[1]["status"] in [failed + each for each in gone]
    assert float(said[1]["since_fault"]) < RETRIES_S[1]
    assert said[0]["status"] == RETRIES
    fault_times.add(ADDRESS, "rxe", said[1]["status"], said[1]["since_fault"])


@on_each_driver
@pytest.mark.slow
def test_a_process_that_stands_still(built: Path, driver: str, fault_times: FaultTimes) -> None:
    """It is not given up, and costs its peer nothing; then all goes on."""
    said = exchange(built, "stopped", MUCH, Link(driver))
    check_whole(said, MUCH)
    waiting = said[0]
    assert STOP_S - 1 < float(waiting["stall_seconds"]) < STOP_S + 2
    assert float(waiting["stall_processor_seconds"]) < 0.2
    assert int(waiting["stall_memory_kib"]) < 512
    add_stalls(fault_times, f"the peer's process stands still for {STOP_S} s", driver, said[:1])


@on_each_driver
@pytest.mark.slow
def test_the_memory_of_a_process_that_stands_still(built: Path, driver: str) -> None:
    """Is read all the same: its device serves that."""
    said = exchange(built, "stopped-read", MUCH, Link(driver))
    check_whole(said, MUCH)
    assert STOP_S - 1 < float(said[0]["stall_seconds"]) < STOP_S + 2
    assert int(said[0]["stall_reads"]) > 10


def in_one_host(program: Path, driver: str = "rxe") -> str:
    (done,) = machine.run([Guest([str(program)], GUEST)], Link(driver), timeout_s=300)
    print(done.stdout)
    assert done.status == 0, done.stdout + done.stderr
    return done.stdout


def test_what_a_device_may_answer(built: Path) -> None:
    """Each error of a completion, a queue that is full, a pair in error, events that come late."""
    assert in_one_host(built / "completions_test").count("ok completions: ") == 9


@on_each_driver
@pytest.mark.slow
def test_what_a_device_may_tell(built: Path, driver: str) -> None:
    """Each asynchronous event, storms of them, and three that the kernel gives by itself."""
    said = in_one_host(built / "events_test", driver)
    assert said.count("ok event ") == {"rxe": 30, "siw": 31}[driver]


@on_each_driver
def test_a_device_that_is_deleted_while_it_is_used(
    built: Path, driver: str, fault_times: FaultTimes
) -> None:
    """The kernel waits until the process ends, and hides the device from others meanwhile."""
    program, device = built / "removal_program", f"{driver}0"
    lines = [
        f"{program} holds /tmp/deleted >/tmp/said & holder=$!",
        "until grep -q reading /tmp/said; do sleep 0.05; done",
        f"rdma link del {device} & deleter=$!",
        'until [ -z "$(rdma link)" ]; do sleep 0.05; done',
        f"{program} works | sed s/^/hidden_/",
        "echo deleter $(sed -n 's/State:\t//p' /proc/$deleter/status)",
        "touch /tmp/deleted",
        "wait $holder; echo holder $?",
        "begin=$(date +%s%N)",
        "wait $deleter; echo deleted $?",
        "echo waited_ms $((($(date +%s%N) - begin) / 1000000))",
        f"{program} works | sed s/^/gone_/",
        f"rdma link add {device} type {driver} netdev veth0; echo added $?",
        f"{program} works; cat /tmp/said",
    ]
    (done,) = machine.run([shell(*lines)], Link(driver), timeout_s=100)
    said = values(done.stdout)
    print(said)
    none = "this machine has no RDMA device."
    assert said["hidden_available"] == none
    # Uninterruptible, while all goes on for who has the device, new connections, too.
    assert said["deleter"] == "D (disk sleep)"
    assert (said["reads"], said["next"], said["holder"]) == ("go on", "ok", "0")
    assert (said["deleted"], said["gone_available"]) == ("0", none)
    assert int(said["waited_ms"]) < 2000
    assert (said["added"], said["available"], said["works"]) == ("0", ".", "yes")
    fault = "the device is deleted, and then the processes end that use it"
    fault_times.add(fault, driver, "the device has gone", int(said["waited_ms"]) / 1000)


def test_a_peer_that_posts_what_it_likes(built: Path) -> None:
    said = in_one_host(built / "hostile_peer_test")
    assert said.count("ok hostile: ") == 12
    assert said.endswith("\nnothing is left\n")
