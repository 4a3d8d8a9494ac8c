"""What this machine offers to the build and to the wheel, and what is missing with its cure."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

import psutil
from rich.table import Table
from rich.text import Text

from artf_cli import bazel, interpreters
from artf_cli.build import DISK_NEEDED
from artf_cli.console import out
from artf_cli.errors import ArtfError
from artf_cli.paths import DIST, cache_dir

OK, WARN, MISSING = "ok", "warn", "missing"
_PROBE_S = 20.0
_GIB = 1 << 30
_MEMORY_BYTES = 4 * _GIB
_SHM_BYTES = 1 * _GIB
# Open MPI since 1.10, MPICH and its kin since 3.1: the ABI versions that are around.
_MPI = {"libmpi.so.40": "Open MPI", "libmpi.so.12": "MPICH ABI"}
_HOW_TO_INSTALL = "on Debian or Ubuntu: apt-get install"
_COLOUR = {OK: "green", WARN: "yellow", MISSING: "red"}


class Check(TypedDict):
    """One finding: `missing` stops a build, `warn` does not; `cure` is empty when all is well."""

    name: str
    status: str
    detail: str
    cure: str


def _check(name: str, status: str, detail: str, cure: str = "") -> Check:
    return Check(name=name, status=status, detail=detail, cure="" if status == OK else cure)


def _output(command: Sequence[str | Path], stdin: str = "") -> str | None:
    """What a command prints; None when it cannot run, fails or takes longer than 20 s."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_PROBE_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _python() -> Check:
    found = interpreters.find()
    return _check(
        "python",
        OK if found else MISSING,
        ", ".join(f"{tag}: {path}" for tag, path in found.items())
        or f"no CPython {', '.join(interpreters.VERSIONS)} that runs and has venv and ensurepip",
        f"{_HOW_TO_INSTALL} python3 python3-venv, or install CPython 3.11 and put it into PATH",
    )


def _compiler() -> Path | None:
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        path = shutil.which(name) if name else None
        if path:
            return Path(path)
    return None


def _compiles(compiler: Path, source: str) -> bool:
    command: list[str | Path] = [compiler, "-std=c++17", "-fsyntax-only", "-x", "c++", "-"]
    return _output(command, stdin=source) is not None


def _compilers(compiler: Path | None) -> Check:
    cure = f"{_HOW_TO_INSTALL} g++ (or set CXX)"
    if compiler is None:
        return _check("c++ compiler", MISSING, "no c++, g++ or clang++ in PATH", cure)
    version = (_output([compiler, "--version"]) or "does not run").splitlines()[0]
    if not _compiles(compiler, "#include <string_view>\nstd::string_view s;\n"):
        return _check("c++ compiler", MISSING, f"{compiler}: {version}: no C++17", cure)
    return _check("c++ compiler", OK, f"{compiler}: {version}")


def _header(compiler: Path | None, name: str, header: str, package: str) -> Check:
    there = compiler is not None and _compiles(compiler, f"#include <{header}>\n")
    detail = f"<{header}> {'compiles' if there else 'does not compile'}"
    return _check(name, OK if there else MISSING, detail, f"{_HOW_TO_INSTALL} {package}")


def _program(name: str, package: str) -> Check:
    path = shutil.which(name)
    version = _output([path, "--version"]) if path else None
    detail = f"{path}: {version.splitlines()[0]}" if version else f"no {name} that runs in PATH"
    cure = f"{_HOW_TO_INSTALL} {package}"
    return _check(name, OK if version else MISSING, detail, cure)


def _bazel() -> Check:
    cure = f"put bazelisk into PATH, set ARTF_BAZEL, or {_HOW_TO_INSTALL} bazel-bootstrap"
    try:
        choice = bazel.find()
    except ArtfError as error:
        return _check("bazel", MISSING, error.what, error.cure)
    if choice is None:
        return _check("bazel", MISSING, "no Bazel of version 4 to 7 in PATH", cure)
    return _check("bazel", OK, f"{choice.path}: {choice.version} ({choice.why})")


def _size(count: float) -> str:
    return f"{count / _GIB:.1f} GiB"


def _disk(name: str, path: Path, cure: str) -> Check:
    there = next(p for p in (path, *path.parents) if p.exists())
    free = shutil.disk_usage(there).free
    detail = f"{path}: {_size(free)} free"
    if not os.access(there, os.W_OK):
        return _check(name, MISSING, f"{detail}, not writable", cure)
    status = OK if free >= DISK_NEEDED else MISSING
    return _check(name, status, detail, f"free {_size(DISK_NEEDED)}, or {cure}")


def _cache() -> Check:
    cure = "set ARTF_CACHE to a folder elsewhere"
    try:
        folder = cache_dir()
    except OSError as error:
        return _check("disk for the cache", MISSING, str(error), cure)
    return _disk("disk for the cache", folder, cure)


def _memory() -> Check:
    memory = psutil.virtual_memory()
    return _check(
        "memory",
        OK if memory.available >= _MEMORY_BYTES else WARN,
        f"{_size(memory.available)} of {_size(memory.total)} available",
        f"free {_size(_MEMORY_BYTES)}: compilers and three TensorFlow processes need it",
    )


def _cores() -> Check:
    usable = len(os.sched_getaffinity(0))
    return _check(
        "cores",
        OK if usable > 1 else WARN,
        f"{usable} usable",
        "use at least 2: a server and a worker on one core take turns",
    )


def _devices() -> list[str]:
    root = Path("/sys/class/infiniband")
    found = []
    for device in sorted(root.iterdir()) if root.is_dir() else []:
        for port in sorted((device / "ports").glob("*")):
            # Such as "4: ACTIVE" and "InfiniBand" or "Ethernet".
            state = (port / "state").read_text().split(":")[-1].strip().lower()
            layer = (port / "link_layer").read_text().strip()
            found.append(f"{device.name} port {port.name} {state} ({layer})")
    return found


def _rdma(devices: Sequence[str]) -> Check:
    return _check(
        "rdma devices",
        OK if any(" active " in device for device in devices) else WARN,
        ", ".join(devices) or "none in /sys/class/infiniband",
        "nothing to do for TCP; for RDMA, load the adapter's driver and bring its port up"
        " (a plain network card: rdma link add rxe0 type rxe netdev NAME)",
    )


def _memlock(devices: Sequence[str]) -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unlimited = soft == resource.RLIM_INFINITY
    shown = [
        "unlimited" if limit == resource.RLIM_INFINITY else f"{limit >> 10} KiB"
        for limit in (soft, hard)
    ]
    # Root's CAP_IPC_LOCK lifts the limit; without an adapter nothing is locked.
    free = unlimited or os.geteuid() == 0 or not devices
    return _check(
        "memlock limit",
        OK if free else WARN,
        f"soft {shown[0]}, hard {shown[1]}",
        "raise it: ulimit -l unlimited (memlock in /etc/security/limits.conf)",
    )


def _shm() -> Check:
    path = Path("/dev/shm")
    if not path.is_dir():
        return _check("/dev/shm", WARN, "there is none", "mount a tmpfs at /dev/shm")
    usage = shutil.disk_usage(path)
    return _check(
        "/dev/shm",
        OK if usage.free >= _SHM_BYTES else WARN,
        f"{_size(usage.free)} of {_size(usage.total)} free",
        f"give it {_size(_SHM_BYTES)} (in a container: --shm-size)",
    )


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _verbs() -> Check:
    there = _loads("libibverbs.so.1")
    return _check(
        "libibverbs",
        OK if there else WARN,
        f"libibverbs.so.1 {'loads' if there else 'does not load'}",
        f"only RDMA needs it; {_HOW_TO_INSTALL} libibverbs1 ibverbs-providers",
    )


def _mpi() -> Check:
    found = [f"{library} ({kind})" for library, kind in _MPI.items() if _loads(library)]
    return _check(
        "mpi library",
        OK if found else WARN,
        ", ".join(found) or f"none of {', '.join(_MPI)} loads",
        f"only grpc+mpi needs it; {_HOW_TO_INSTALL} libopenmpi3 openmpi-bin",
    )


def _wheel() -> Check:
    wheels = sorted(path.name for path in DIST.glob("*.whl"))
    return _check(
        "wheel",
        OK if wheels else WARN,
        ", ".join(re.sub(r"-manylinux.*", "", name) for name in wheels) or f"none in {DIST}",
        "make it: scripts/artf build",
    )


def examine() -> dict[str, Any]:
    """Looks at this machine and changes nothing; takes a few seconds.

    {"ok": nothing that a build needs is missing, "checks": a list of `Check`}.
    """
    compiler = _compiler()
    devices = _devices()
    checks = [
        _python(),
        _compilers(compiler),
        _bazel(),
        _program("protoc", "protobuf-compiler"),
        _header(
            compiler,
            "libprotoc headers",
            "google/protobuf/compiler/code_generator.h",
            "libprotoc-dev",
        ),
        _program("git", "git"),
        _cache(),
        _disk("disk for dist", DIST, "check the repository out elsewhere"),
        _memory(),
        _cores(),
        _memlock(devices),
        _shm(),
        _rdma(devices),
        _verbs(),
        _mpi(),
        _wheel(),
    ]
    return {"ok": all(check["status"] != MISSING for check in checks), "checks": checks}


def render(examination: dict[str, Any]) -> None:
    """Prints the findings as a table on standard output, each with its cure below it."""
    table = Table(title="What this machine offers")
    table.add_column("what", no_wrap=True)
    table.add_column("status")
    table.add_column("detail", overflow="fold")
    for check in examination["checks"]:
        detail = Text(check["detail"])
        if check["cure"]:
            detail.append(f"\n→ {check['cure']}", style="bold")
        status = Text(check["status"], style=_COLOUR[check["status"]])
        table.add_row(check["name"], status, detail)
    out.print(table)
