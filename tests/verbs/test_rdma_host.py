"""The virtual RDMA host itself: what the tests of verbs stand on."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from artf_cli.errors import ArtfError
from common.ar import eventually
from common.repeated import few
from rdma_host import machine
from rdma_host.machine import ADDRESSES, Guest, Link, Outcome

# The first one waits until the kernel is compiled.
pytestmark = pytest.mark.timeout(900)

# Goes on when the other host is up. knock() tries a port of it that nobody listens to: how long the
# answer takes, in seconds, or nothing when there is none.
WHEN_IT_ANSWERS = f"""
import socket, subprocess, time

def knock():
    begin = time.monotonic()
    try:
        socket.create_connection(("{ADDRESSES[1]}", 9), timeout=2)
    except ConnectionRefusedError:
        return time.monotonic() - begin
    except OSError:
        return None

deadline = time.monotonic() + 60
while knock() is None:
    assert time.monotonic() < deadline, "the other host does not answer"
"""
KNOCK = f"""{WHEN_IT_ANSWERS}
def impair(*how):
    subprocess.run(["tc", "qdisc", "change", "dev", "vec0", "root", "netem", *how], check=True)

print(min(knock() or 9 for _ in range(5)))
impair("loss", "100%")
print(knock())
impair("delay", "100ms")
print(knock())
socket.create_connection(("{ADDRESSES[1]}", 10), timeout=10)
"""
# Ends when the other host has done with it.
STAYS = """
import socket
server = socket.create_server(("", 10))
server.settimeout(60)
server.accept()
"""
# A server of perftest that a client in the other host must find first. Then how many bytes came.
CLIENT = """
for i in $(seq 100); do
  if ib_read_lat -d "$1" "${@:2}"; then
    echo "received $(cat /sys/class/net/v*0/statistics/rx_bytes)"
    exit
  fi
  sleep 0.1
done
exit 1
"""
SIZE = 65536


def run(*words: str, link: Link = Link(), **settings: float) -> Outcome:  # noqa: B008 - frozen
    return machine.run([Guest(words)], link, timeout_s=settings.get("timeout_s", 60))[0]


def test_a_command_has_its_words_and_both_streams(tmp_path: Path) -> None:
    script = 'echo "$1"; echo second >&2; echo "$TOLD $PWD"; exit 7'
    guest = Guest(["bash", "-c", script, "x", " a 'b'\n\t$HOME "], {"TOLD": "two\nlines"}, tmp_path)
    done = machine.run([guest], Link(), timeout_s=60)[0]
    assert done == Outcome(7, f" a 'b'\n\t$HOME \ntwo\nlines {tmp_path}\n", "second\n")


def test_a_host_that_does_not_end_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its command has ended, and its outcome counts; this one drains its link's queue meanwhile."""
    monkeypatch.setattr(machine, "_POWER_OFF_S", 0.1)
    script = (
        "tc qdisc change dev veth0 root netem delay 60s; ping -c1 -W1 10.7.0.99; echo said; exit 3"
    )
    began = time.monotonic()
    done = run("bash", "-c", script)
    assert (done.status, done.stdout.splitlines()[-1]) == (3, "said")
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("driver", machine.DRIVERS)
def test_the_device_is_there(driver: str) -> None:
    done = run("bash", "-c", "rdma link show; ibv_devices", link=Link(driver))
    assert f"link {driver}0/1 state ACTIVE physical_state LINK_UP netdev veth0" in done.stdout
    assert re.search(rf"^\s+{driver}0\s+[0-9a-f]{{16}}$", done.stdout, re.M)


def test_a_host_has_a_name_of_its_own() -> None:
    """Of both hosts, each knows its address by it."""
    names = ["rdma1", "rdma2"]
    asked = [Guest(["bash", "-c", "hostname; getent ahostsv4 $(hostname)"]) for _ in names]
    outcomes = machine.run(asked, Link(), timeout_s=60)
    for name, address, done in zip(names, ADDRESSES, outcomes):
        said, resolved = done.stdout.splitlines()[:2]
        assert (said, resolved.split()[0]) == (name, address)


def test_what_a_host_writes_goes_with_it(tmp_path: Path) -> None:
    file = tmp_path / "there"
    file.write_text("before")
    done = run("bash", "-c", f"echo after > {file}; touch {file}2; cat {file}")
    assert done.stdout == "after\n"
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_what_a_host_writes_in_a_shared_folder_stays(tmp_path: Path) -> None:
    """In both folders, whatever their names, and beside them nothing."""
    folders = [tmp_path / "one", tmp_path / "and, another"]
    for folder in folders:
        folder.mkdir()
        (folder / "there").write_text("before")
    script = 'for i; do cat "$i/there"; echo after >"$i/there"; mkdir "$i/new"; done; touch "$0"'
    words = ["bash", "-c", script, str(tmp_path / "beside"), *map(str, folders)]
    done = machine.run([Guest(words, shared=folders)], Link(), timeout_s=60)[0]
    assert done == Outcome(0, "beforebefore", "")
    assert [(each / "there").read_text() for each in folders] == ["after\n"] * 2
    assert [(each / "new").is_dir() for each in folders] == [True] * 2
    assert sorted(tmp_path.iterdir()) == sorted(folders)


@pytest.mark.parametrize(
    ("driver", "how"), [("rxe", ["-x", str(machine.GID_INDEX)]), ("siw", ["-R"])]
)
def test_two_hosts_read_each_others_memory(driver: str, how: list[str]) -> None:
    """By RDMA READ; soft-iWARP needs librdmacm to connect."""
    settings = [*how, "-e", "-s", str(SIZE), "-n", "100"]
    server = Guest(["ib_read_lat", "-d", f"{driver}0", *settings])
    client = Guest(["bash", "-c", CLIENT, "client", f"{driver}0", *settings, ADDRESSES[0]])
    done = machine.run([server, client], Link(driver), timeout_s=90)
    assert [each.status for each in done] == [0, 0], done
    # perftest's row: bytes, iterations, and then microseconds, which mean nothing in a virtual host
    # (they are infinite where it could not tell the clock's frequency).
    assert re.search(rf"^ {SIZE}\s+100\s", done[1].stdout, re.M), done[1].stdout
    received = re.search(r"^received (\d+)$", done[1].stdout, re.M)
    # The bytes, and some tenth more for headers, acknowledgements and what was sent twice.
    assert received and 100 * SIZE <= int(received[1]) < 120 * SIZE, done[1].stdout


@pytest.mark.parametrize("delay_ms", few([0, 100], 100))
def test_a_link_delays_and_loses(delay_ms: int) -> None:
    # The other host's own packets are delayed, too.
    stays = Guest([sys.executable, "-c", STAYS])
    knocks = Guest([sys.executable, "-c", KNOCK])
    done = machine.run([knocks, stays], Link(delay_ms=delay_ms), timeout_s=90)
    assert done[0].status == 0, done[0].stderr
    first, lost, delayed = done[0].stdout.split()
    assert lost == "None"
    assert 2 * delay_ms <= float(first) * 1000
    assert 100 + delay_ms <= float(delayed) * 1000
    if not delay_ms:
        assert float(first) < float(delayed)


def vm(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "artf_cli", "vm", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_command_line() -> None:
    """Both hosts' output as it comes, and the status of the first that failed."""
    done = vm(
        "--peer", "bash -c 'echo there; exit 4'", "--", "bash", "-c", "echo here >&2; rdma link"
    )
    assert (done.returncode, "peer: there\n" in done.stdout) == (4, True), done
    assert "link rxe0/1 state ACTIVE" in done.stdout
    assert done.stderr.endswith("here\n")


@pytest.mark.slow
def test_a_link_that_loses_all() -> None:
    connect = f"import socket; socket.create_connection(('{ADDRESSES[1]}', 9), timeout=20)"
    done = vm("--loss", "100", "--peer", "sleep 8", "--", sys.executable, "-c", connect)
    assert done.returncode == 1
    # Not even the question for its hardware address arrives.
    assert "No route to host" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (("--peer", "echo 'open", "true"), 2, "No closing quotation"),
        (("--driver", "mlx5", "true"), 2, "'mlx5' is not one of"),
        (("--memory", "60000", "--peer", "true", "true"), 1, "2 x 60000 MiB of memory do not fit"),
        (("--share", "/nowhere", "true"), 1, "/nowhere is no folder that a virtual RDMA host"),
    ],
)
def test_a_wrong_argument(arguments: tuple[str, ...], status: int, named: str) -> None:
    done = vm(*arguments)
    assert (done.returncode, named in done.stderr) == (status, True), done


@pytest.mark.slow
def test_time_is_up() -> None:
    begin = time.monotonic()
    with pytest.raises(ArtfError, match="did not end within 10 s: half a line"):
        run("bash", "-c", "printf 'half a line'; sleep 60", timeout_s=10)
    assert time.monotonic() - begin < 40
    assert psutil.Process().children(recursive=True) == []


def test_a_host_that_dies_is_no_result() -> None:
    with pytest.raises(ArtfError, match="died before its command ended"):
        run("busybox", "poweroff", "-f")


# The bound makes the device's queue stop at once: the kernel's own may grow beyond all that the
# flood's socket holds, and then the socket waits and the watchdog has nothing to see.
_FLOOD = f"""{WHEN_IT_ANSWERS}
with open("/sys/class/net/vec0/queues/tx-0/byte_queue_limits/limit_max", "w") as bound:
    bound.write("16384")
flood = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
flood.connect(("{ADDRESSES[1]}", 9))
print("begins", flush=True)
longest, last, end = 0, time.monotonic(), time.monotonic() + 15
while last < end:
    try:
        flood.send(bytes(1400))
    except ConnectionRefusedError:  # nobody listens
        pass
    longest, last = max(longest, time.monotonic() - last), time.monotonic()
print("longest", longest)
"""


@pytest.mark.slow
def test_a_host_goes_on_whose_peer_has_stood_still() -> None:
    """Its queue is full for longer than its device's watchdog waits, which is half a second."""
    sends = Guest([sys.executable, "-c", _FLOOD])
    stands = Guest(["sleep", "120"])
    with machine.boot([sends, stands], Link(), memory_mb=512) as (sender, peer):
        assert eventually(lambda: "begins" in sender.output("stdout"), 120)
        for _ in range(4):  # a sender that others leave no processor has sent too little meanwhile
            time.sleep(1)
            with peer.stopped():
                time.sleep(2)
            if "timed out" in sender.log():
                break
        assert eventually(sender.ended, 120)
        said = sender.outcome()
        kernel_said = sender.log()
    assert said.status == 0, said
    assert float(said.stdout.split()[-1]) > 1
    assert "transmit queue 0 timed out" in kernel_said


_MAPS_ANEW = """
import ctypes, mmap, os
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
SIZE, MAP_FIXED = 65536, 0x10
def memory(number, place, flags):
    file = os.memfd_create(str(number))
    os.ftruncate(file, SIZE)
    return file, libc.mmap(place, SIZE, 3, mmap.MAP_SHARED | flags, file, 0)
_, place = memory(1, None, 0)
ctypes.memset(place, 1, SIZE)
assert libc.madvise(place, SIZE, mmap.MADV_DONTFORK) == 0
if (child := os.fork()) == 0:
    file, _ = memory(2, place, MAP_FIXED)
    ctypes.memset(place, 2, SIZE)
    os._exit(os.pread(file, 1, 100)[0])
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print("parent", ctypes.string_at(place, SIZE) == bytes([1]) * SIZE)
"""


def test_a_forked_process_has_memory_of_its_own() -> None:
    """Also where its parent has memory that is not for it, as of a queue pair."""
    done = run(sys.executable, "-c", _MAPS_ANEW)
    assert (done.status, done.stdout.split()) == (0, ["child", "2", "parent", "True"]), done


@pytest.mark.slow
def test_a_kernel_that_panics_is_no_result() -> None:
    """It ends at once: User-Mode-Linux can also panic while it halts, when a timer comes late."""
    script = "echo 1 >/proc/sys/vm/panic_on_oom; tail /dev/zero"
    with pytest.raises(ArtfError, match=r"ended \(Kernel panic - not syncing: Out of memory"):
        machine.run([Guest(["bash", "-c", script])], Link(), memory_mb=256, timeout_s=60)
