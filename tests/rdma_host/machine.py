"""Boots one or two virtual RDMA hosts and runs a command in each.

A host has this machine's file system, read-only with a layer in memory above it, one processor,
memory of its own, and an RDMA device: Soft-RoCE (`rxe0`) or soft-iWARP (`siw0`). One host alone has
it on a pair of virtual Ethernet devices; two have it on a link between them (UML's vector devices
at the two ends of a socket pair), whose `interface` can delay and lose packets: tc-netem(8).
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from artf_cli import supervise, system
from artf_cli.console import note
from artf_cli.errors import ArtfError
from rdma_host import kernel

_INIT = Path(__file__).with_name("guest_init.sh")
#: The drivers: Soft-RoCE (RoCE v2) and soft-iWARP. A device is named after its driver: rxe0, siw0.
DRIVERS = ("rxe", "siw")
#: The hosts' addresses on their link, in order; a single host has the first.
ADDRESSES = ("10.77.0.1", "10.77.0.2")
#: Of Soft-RoCE's GIDs the one that is made of the IPv4 address.
GID_INDEX = 1
_NEEDS = {
    "busybox": "busybox-static",
    "ip": "iproute2",
    "rdma": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "setsid": "util-linux",
    "ibv_devices": "ibverbs-utils",
    "/etc/libibverbs.d/rxe.driver": "ibverbs-providers",
    "rping": "rdmacm-utils",
    "ib_read_lat": "perftest",
}
# A guest process with many scattered pages has as many mappings here.
_MAX_MAP_COUNT = Path("/proc/sys/vm/max_map_count")
_MAPPINGS = 4194304
# Memory of a guest is a file there, of the size that it has touched.
_MEMORY = Path("/dev/shm")
STREAMS = ("stdout", "stderr")
#: Packets that wait for the cable: more than any burst of READs. The device drops what exceeds it.
_QUEUE = 4096
_STOP_S = 10.0
# From a command's end to the host's: two seconds for its link's queue, and as much again.
_POWER_OFF_S = 10.0
_POLL_S = 0.02


@dataclass(frozen=True)
class Guest:
    """What a virtual host is to run: `words` is a command, `environment` all that it gets of one
    (default: this process's).

    What it writes in a folder of `shared` is written on this machine; all else that it writes is
    seen by it alone.
    """

    words: Sequence[str]
    environment: Mapping[str, str] | None = None
    cwd: Path = field(default_factory=Path.cwd)
    shared: Sequence[Path] = ()


@dataclass(frozen=True)
class Link:
    """The RDMA driver, and how the link between two hosts behaves: a delay in ms each way, and the
    percentages of packets that are lost, and that are not delayed and so overtake others."""

    driver: str = "rxe"
    delay_ms: float = 0.0
    loss_percent: float = 0.0
    reorder_percent: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """How a guest's command ended, and what it wrote."""

    status: int
    stdout: str
    stderr: str


def prepare() -> Path:
    """Installs what is missing and builds the kernel; ArtfError when that cannot be."""
    if os.uname().machine != "x86_64":
        raise ArtfError("User-Mode-Linux with RDMA is for x86-64", "run on an x86-64 Linux")
    if os.geteuid() != 0:
        raise ArtfError("only root can boot a virtual RDMA host", "run as root")
    missing = sorted(set(system.missing(_NEEDS)))
    if missing:
        system.apt_install("part of the virtual RDMA host's user space", missing)
    if int(_MAX_MAP_COUNT.read_text()) < _MAPPINGS:
        try:
            _MAX_MAP_COUNT.write_text(str(_MAPPINGS))
        except OSError as error:
            raise ArtfError(
                f"vm.max_map_count cannot be raised: {error.strerror}",
                f"as root run: sysctl vm.max_map_count={_MAPPINGS}",
            ) from None
        note(f"raised vm.max_map_count to {_MAPPINGS}, until this machine restarts")
    return kernel.build()


class _Output:
    """What comes through a pipe, kept by a thread until nobody writes any more."""

    def __init__(self) -> None:
        self._read, self.write = os.pipe()
        self._bytes = bytearray()
        self._shown = 0
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        with os.fdopen(self._read, "rb", buffering=0) as pipe:
            while piece := pipe.read(1 << 16):
                self._bytes += piece

    def text(self, whole: bool) -> str:
        """All so far; with `whole` once the last writer has gone."""
        if whole:
            self._thread.join()
        return bytes(self._bytes).decode(errors="replace")

    def fresh(self, whole: bool) -> str:
        """The lines that came since the last call; with `whole` all the rest."""
        if whole:
            self._thread.join()
        end = len(self._bytes) if whole else self._bytes.rfind(b"\n") + 1
        begin, self._shown = self._shown, max(end, self._shown)
        return bytes(self._bytes[begin : self._shown]).decode(errors="replace")


class Machine:
    """A virtual host that runs; `boot` makes it."""

    def __init__(self, child: supervise.Child, folder: Path, outputs: Sequence[_Output]) -> None:
        self._child = child
        self._folder = folder
        self._outputs = dict(zip(STREAMS, outputs))
        self._command_ended: float | None = None

    def ended(self) -> bool:
        """Whether the host is off.

        One that does not come to its end after its command has is switched off: the outcome is
        known by then.
        """
        if self._child.status() is not None:
            return True
        if self._command_ended is None:
            if (self._folder / "status").exists():
                self._command_ended = time.monotonic()
        elif time.monotonic() - self._command_ended > _POWER_OFF_S:
            self._child.kill()
        return False

    def kill(self) -> None:
        """Ends the host at once, as a loss of power would: nothing is sent any more."""
        self._child.kill()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The host stands still within the block, as when its machine has no time for it."""
        # unshare's child is setsid, and its child the kernel, which runs all of the host.
        ((kernel,),) = (each.children() for each in psutil.Process(self._child.pid).children())
        kernel.suspend()
        try:
            yield
        finally:
            kernel.resume()

    def output(self, name: str) -> str:
        """What the command has written so far to `stdout` or `stderr`."""
        return self._outputs[name].text(self.ended())

    def fresh(self, name: str) -> str:
        """The whole lines of its output that came since the last call; all once it has ended."""
        return self._outputs[name].fresh(self.ended())

    def log(self) -> str:
        """What the kernel has said of itself."""
        return self._child.stderr.read_text(errors="replace")

    def outcome(self) -> Outcome:
        """How it ended; raises ArtfError where the host failed and not its command."""
        refused, status = self._folder / "refused", self._folder / "status"
        if refused.exists():
            raise ArtfError(
                f"the virtual RDMA host has no device: {refused.read_text().strip()}",
                "check the driver's name and that this machine has the programs ip, rdma and tc",
            )
        if not status.exists():
            said = self.log().splitlines()
            panics = "".join(f" ({line})" for line in said if line.startswith("Kernel panic"))
            raise self._child.failure(f"died before its command ended{panics}")
        return Outcome(int(status.read_text()), *map(self.output, STREAMS))


@contextmanager
def _cable() -> Iterator[tuple[socket.socket, socket.socket]]:
    """What two hosts' network devices are plugged into; it loses nothing by itself.

    Over UDP a host that is slower than the other one would lose the end of each burst.
    """
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ends[0], ends[1]:
        for end in ends:
            end.setblocking(False)
        yield ends


def _check_memory(megabytes: int, hosts: int) -> None:
    free = shutil.disk_usage(_MEMORY).free >> 20
    if megabytes * hosts > free:
        raise ArtfError(
            f"{hosts} x {megabytes} MiB of memory do not fit into {_MEMORY}, which has {free} free",
            "ask for less with --memory, or enlarge it: mount -o remount,size=… /dev/shm",
        )


def _check_shared(guests: Sequence[Guest]) -> None:
    for folder in (each for guest in guests for each in guest.shared):
        if not folder.is_dir():
            raise ArtfError(
                f"{folder} is no folder that a virtual RDMA host could share",
                "make it, or name another one with --share",
            )


def _start(
    group: supervise.Group,
    folder: Path,
    number: int,
    guest: Guest,
    arguments: Sequence[str],
    cable: socket.socket | None,
) -> Machine:
    environment = guest.environment if guest.environment is not None else os.environ
    (folder / "words").write_bytes(b"\0".join(map(os.fsencode, guest.words)) + b"\0")
    pairs = (f"{name}={value}" for name, value in environment.items())
    (folder / "environment").write_bytes(b"\0".join(map(os.fsencode, pairs)) + b"\0")
    (folder / "cwd").write_text(str(guest.cwd))
    shared = (os.fsencode(each.resolve()) + b"\0" for each in guest.shared)
    (folder / "shared").write_bytes(b"".join(shared))
    # The rest of a file that the kernel makes anew at each read.
    (folder / "cpuinfo").write_text(Path("/proc/cpuinfo").read_text())
    init = folder / "init"
    shutil.copyfile(_INIT, init)
    init.chmod(0o755)
    command = [str(shutil.which("unshare")), "--pid", "--fork", "--kill-child"]
    # Not the first process of its namespace: that one cannot kill itself with a signal, and a
    # kernel that panics would try for ever.
    command += ["setsid", "--fork", "--wait"]
    # A processor each; one that moves between processors loses time. Not the first one for every
    # single host: suites run side by side.
    cores = sorted(os.sched_getaffinity(0))
    command += ["taskset", "-c", str(cores[(os.getpid() + number) % len(cores)]), *arguments]
    command += [f"init={init}", f"vm_folder={folder}", f"vm_address={ADDRESSES[number]}"]
    command += [f"umid=host{number}", f"uml_dir={folder}/"]
    env = {**os.environ, "TMPDIR": str(_MEMORY)}
    # What the kernel says of itself goes to the host's log: errors, and why it panics.
    command += ["con=null", "con0=null,fd:2", "ssl=null"]
    passed = []
    if cable is None:
        command.append("vm_interface=veth0")
    else:
        passed.append(cable.fileno())
        command += ["vm_interface=vec0", f"vec0:transport=fd,fd={cable.fileno()},depth={_QUEUE}"]
    # Pipes: the kernel waits for its descriptors by epoll, which takes no files.
    outputs = [_Output() for _ in STREAMS]
    ends = [output.write for output in outputs]
    command += [f"con{i + 1}=null,fd:{end}" for i, end in enumerate(ends)]
    try:
        child = group.start(f"host{number}", command, env=env, pass_fds=[*ends, *passed])
    finally:
        for end in ends:
            os.close(end)
    return Machine(child, folder, outputs)


def _folder(stack: ExitStack, number: int) -> Path:
    """A host's own folder, which both sides see; its path travels on the kernel's command line."""
    made = tempfile.TemporaryDirectory(prefix=f"artf-host{number}-")
    folder = Path(stack.enter_context(made))
    if any(letter.isspace() for letter in str(folder)):
        raise ArtfError(f"{folder} has a blank in its path", "set TMPDIR to a folder without one")
    return folder


@contextmanager
def boot(guests: Sequence[Guest], link: Link, memory_mb: int = 2048) -> Iterator[list[Machine]]:
    """One or two hosts that run their commands; at the end of the block none is left.

    Raises ArtfError when a host cannot be had here.
    """
    _check_shared(guests)
    image = prepare()
    _check_memory(memory_mb, len(guests))
    arguments = [str(image), f"mem={memory_mb}M", "root=/dev/root", "rootfstype=hostfs"]
    arguments += ["rootflags=/", "ro", "quiet", f"vm_driver={link.driver}"]
    arguments += [f"vm_delay={link.delay_ms:g}ms", f"vm_loss={link.loss_percent:g}%"]
    if link.reorder_percent:
        arguments += [f"vm_reorder={link.reorder_percent:g}%"]
    with ExitStack() as stack:
        logs = stack.enter_context(supervise.log_folder("rdma-host"))
        cables: Sequence[socket.socket | None] = [None]
        if len(guests) == 2:
            cables = stack.enter_context(_cable())
        folders = [_folder(stack, number) for number in range(len(guests))]
        # Last, so that the hosts end before what they use goes.
        group = stack.enter_context(supervise.Group(logs, grace_s=_STOP_S))
        starts = enumerate(zip(folders, guests, cables))
        yield [
            _start(group, folder, number, guest, arguments, cable)
            for number, (folder, guest, cable) in starts
        ]


def run(
    guests: Sequence[Guest],
    link: Link,
    memory_mb: int = 2048,
    timeout_s: float = 600.0,
    show: Callable[[int, str, str], None] | None = None,
) -> list[Outcome]:
    """Boots as many hosts as there are guests (1 or 2) and waits until all commands have ended.

    `show` gets (host, `stdout` or `stderr`, text) as it comes. Raises ArtfError when a host dies,
    or after `timeout_s` seconds, with what was written so far.
    """
    with boot(guests, link, memory_mb) as machines:
        limit = time.monotonic() + timeout_s
        running = True
        while running:
            running = not all(each.ended() for each in machines)
            if show is not None:
                for number, name in itertools.product(range(len(machines)), STREAMS):
                    if text := machines[number].fresh(name):
                        show(number, name, text)
            if running and time.monotonic() > limit:
                said = " | ".join(
                    supervise.last_lines(each.output(name)) for each in machines for name in STREAMS
                )
                raise ArtfError(
                    f"the virtual RDMA host did not end within {timeout_s:g} s: {said}",
                    "give it longer with --timeout, or see where its command waits",
                )
            time.sleep(_POLL_S)
        return [each.outcome() for each in machines]


def self_test() -> None:
    """Boots two linked hosts with a device each; ArtfError says why that cannot be here."""
    for each in run([Guest(["true"]), Guest(["true"])], Link(), timeout_s=60):
        if each.status != 0:
            raise ArtfError(
                f"a virtual RDMA host does not run a program: {each.stderr.strip()}",
                "see its log in the cache",
            )
