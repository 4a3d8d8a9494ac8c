"""Builds the virtual host's kernel from Debian's own source package, once, into the cache."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from filelock import FileLock

from artf_cli import supervise, system
from artf_cli.errors import ArtfError
from artf_cli.paths import cache_dir
from artf_cli.progress import Meter

_HERE = Path(__file__).parent
CONFIG = _HERE / "kernel.config"
#: Debian 12's; another version works as long as the edits below find their lines.
PACKAGE = "linux-source-6.1"
_ARCHIVE = Path("/usr/src") / f"{PACKAGE}.tar.xz"
_NEEDS = {
    str(_ARCHIVE): PACKAGE,
    "gcc": "gcc",
    "make": "make",
    "bc": "bc",
    "bison": "bison",
    "flex": "flex",
    "xz": "xz-utils",
}
# What no configuration of ours compiles: two thirds of the archive.
_LEFT_OUT = (
    "*/Documentation/*.rst",
    "*/Documentation/*.yaml",
    "*/drivers/gpu/*.[ch]",
    "*/drivers/media/*.[ch]",
    "*/drivers/staging/*.[ch]",
    "*/sound/*.[ch]",
    "*/tools/testing",
)
_EDITS = {
    # A processor with AMX has more registers to save (10.7 kB) than the buffer for ptrace holds.
    "arch/x86/um/user-offsets.c": (
        "DEFINE_LONGS(HOST_FP_SIZE, 2696)",
        "DEFINE_LONGS(HOST_FP_SIZE, 11264)",
    ),
    # With a tick of 10 ms two peers that share the one processor wait 10 to 20 ms for each other.
    "arch/um/Kconfig": ("config HZ\n\tint\n\tdefault 100\n", "config HZ\n\tint\n\tdefault 1000\n"),
    # While the other host takes no packets for half a second, the watchdog of the device between
    # two hosts resets the kernel's count of queued bytes (BQL), though they stay queued. When they
    # are sent after all, dql_completed() finds more than were counted, and panics.
    "arch/um/drivers/vector_kern.c": (
        "\tnetdev_reset_queue(vp->dev);\n\tnetif_start_queue(vp->dev);\n\tnetif_wake_queue",
        "\tnetif_start_queue(vp->dev);\n\tnetif_wake_queue",
    ),
    # A forked process begins with all that its parent has mapped on the machine below, of which
    # just what it has itself is then put right. Where it maps anything in the place of memory that
    # was not for it (MADV_DONTFORK, as of a queue pair), it would write to the parent's.
    "arch/um/kernel/tlb.c": (
        "\tstruct vm_area_struct *vma;\n\tVMA_ITERATOR(vmi, mm, 0);\n\n"
        "\tfor_each_vma(vmi, vma)\n\t\tfix_range(mm, vma->vm_start, vma->vm_end, 1);\n",
        "\n\tfix_range(mm, 0, TASK_SIZE, 1);\n",
    ),
}
# Lines of make that stand for a file, and about how many a build has.
_FILE_MADE = re.compile(r"\s+(?:CC|AS|AR|HOSTCC|LD|LEX|YACC)\s+(\S+)")
_FILES = 1200
_DISK_NEEDED = 2 << 30


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def _must(doing: str, command: list[str], cure: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ArtfError(f"{doing} failed: {last}", cure)


def version() -> str:
    """The installed version of the kernel source's package; ArtfError when there is none."""
    needed = system.missing(_NEEDS)
    if needed:
        system.apt_install("part of what builds the virtual RDMA host", needed)
    found = _output("dpkg-query", "-W", "-f", "${Version}", PACKAGE)
    if not found:
        raise ArtfError(f"{_ARCHIVE} belongs to no package", f"install Debian's {PACKAGE}")
    return found


def _key(package: str) -> str:
    """Names a kernel by all that it is made of: source, configuration, edits, compiler."""
    parts = (package, CONFIG.read_text(), repr(_EDITS), _output("gcc", "-dumpfullversion"))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def build() -> Path:
    """The kernel, an executable file; compiled (some four minutes on two cores) if need be.

    Raises ArtfError with the packages to install, with the first error of the compiler, or when
    the kernel source lacks an option that the configuration asks for.
    """
    package = version()
    folder = cache_dir() / "rdma-host"
    folder.mkdir(parents=True, exist_ok=True)
    kernel = folder / f"linux-{package}-{_key(package)}"
    with FileLock(folder / "lock"):
        if not kernel.exists():
            free = shutil.disk_usage(folder).free
            if free < _DISK_NEEDED:
                raise ArtfError(
                    f"{folder} has {free >> 20} MiB free, a kernel needs {_DISK_NEEDED >> 20}",
                    "make room, or set ARTF_CACHE elsewhere",
                )
            with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as work:
                _compile(Path(work), kernel)
    return kernel


def _compile(work: Path, kernel: Path) -> None:
    with supervise.log_folder("rdma-host") as logs, supervise.Group(logs) as group:
        with Meter(f"the virtual RDMA host's kernel ({PACKAGE})", _FILES) as meter:
            meter.show(0, "unpacking")
            source = _unpack(work)
            _configure(source, work / "out")
            command = ["make", *_make(source, work / "out")]
            command += [f"-j{len(os.sched_getaffinity(0))}", "linux"]
            child = group.start("make", [str(shutil.which("make")), *command[1:]])
            done = 0
            with child.stdout.open(errors="replace") as stream:
                status: int | None = None
                while status is None:
                    status = child.status()
                    for line in stream:
                        if found := _FILE_MADE.match(line):
                            done = min(done + 1, _FILES)
                            meter.show(done, found[1])
                    time.sleep(0.2)
        if status != 0:
            said = child.stderr.read_text(errors="replace").splitlines()
            first = (
                [line for line in said if "error" in line.lower()] or said[-1:] or ["no message"]
            )
            raise ArtfError(
                f"the virtual RDMA host's kernel does not compile: {first[0]}",
                f"read its log {child.stderr}",
            )
    stripped = work / "stripped"
    command = ["strip", "-o", str(stripped), str(work / "out" / "linux")]
    _must("strip of the virtual RDMA host's kernel", command, f"make room in {kernel.parent}")
    stripped.replace(kernel)


def _unpack(work: Path) -> Path:
    command = ["tar", "-xf", str(_ARCHIVE), "-C", str(work)]
    command += [f"--exclude={each}" for each in _LEFT_OUT]
    cure = f"make room in {work.parent}, or: apt-get install --reinstall {PACKAGE}"
    _must(f"unpacking {_ARCHIVE}", command, cure)
    source = work / PACKAGE
    for name, (before, after) in _EDITS.items():
        text = (source / name).read_text()
        if text.count(before) != 1:
            raise ArtfError(
                f"{PACKAGE} has {before!r} {text.count(before)} times in {name}, not once",
                f"adapt _EDITS in {Path(__file__).name} to this version",
            )
        (source / name).write_text(text.replace(before, after))
    return source


def _make(source: Path, out: Path) -> list[str]:
    return ["-C", str(source), "ARCH=um", f"O={out}"]


def _configure(source: Path, out: Path) -> None:
    """Everything off but what the configuration names and what that needs."""
    out.mkdir()
    env = {**os.environ, "KCONFIG_ALLCONFIG": str(CONFIG)}
    command = ["make", "-s", *_make(source, out), "allnoconfig"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    made = (out / ".config").read_text().splitlines() if done.returncode == 0 else []
    wanted = [line for line in CONFIG.read_text().splitlines() if line.startswith("CONFIG_")]
    lost = [line for line in wanted if line not in made]
    if lost:
        why = done.stderr.strip().splitlines()[-1:] or [f"it has no {', '.join(lost)}"]
        raise ArtfError(
            f"{PACKAGE} cannot be configured: {why[0]}", f"adapt {CONFIG.name} to this version"
        )
