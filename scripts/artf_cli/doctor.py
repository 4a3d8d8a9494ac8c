"""What this machine offers to the build and to the wheel, and what is missing with its cure."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from rich.table import Table
from rich.text import Text

from artf_cli import bazel, interpreters, rdma, reach, system
from artf_cli.build import DISK_NEEDED
from artf_cli.checks import MISSING, OK, WARN, Check, check
from artf_cli.console import out
from artf_cli.errors import ArtfError
from artf_cli.paths import DIST, cache_dir

_PROBE_S = 20.0
_GIB = 1 << 30
_MEMORY_BYTES = 4 * _GIB
_SHM_BYTES = 1 * _GIB
# As third_party/ar_grpc/mpi/choice.cc looks for them.
_MPI = {
    "libmpi.so.40": "Open MPI",
    "libmpi.so.12": "MPICH ABI",
    "libmpich.so.12": "MPICH, as Debian names it",
    "libmpi_abi.so.1": "MPI 5's ABI",
    "libmpi_abi.so.0": "MPI 5's ABI",
    "libmpi_abi.so": "MPI 5's ABI",
}
_COLOUR = {OK: "green", WARN: "yellow", MISSING: "red"}


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
    try:
        found = interpreters.here()
    except ArtfError as error:
        return check("python", MISSING, error.what, error.cure)
    return check(
        "python",
        OK if found else WARN,
        ", ".join(f"{tag}: {path}" for tag, path in found.items())
        or f"no CPython {', '.join(interpreters.VERSIONS)} here: one is fetched when it is needed",
        "to have none fetched, put one of a module, conda or pyenv on PATH",
    )


def _compiler() -> Path | None:
    # As scripts/preflight and the build.
    for name in (os.environ.get("CC"), "g++"):
        path = shutil.which(name) if name else None
        if path:
            return Path(path)
    return None


def _compiles(compiler: Path, source: str) -> bool:
    command: list[str | Path] = [compiler, "-std=c++17", "-fsyntax-only", "-x", "c++", "-"]
    return _output(command, stdin=source) is not None


def _compilers(compiler: Path | None) -> Check:
    cure = system.cure("compiler")
    if compiler is None:
        return check("c++ compiler", MISSING, "no g++ in PATH, and CC names none", cure)
    version = (_output([compiler, "--version"]) or "does not run").splitlines()[0]
    if not _compiles(compiler, "#include <string_view>\nstd::string_view s;\n"):
        return check("c++ compiler", MISSING, f"{compiler}: {version}: no C++17", cure)
    return check("c++ compiler", OK, f"{compiler}: {version}")


def _certificates() -> Check:
    need = system.needs()["certificates"]
    found = next((probe for probe in need.probes if system.there(probe)), None)
    where = os.environ.get(found[1:], "") if found and found.startswith("$") else found
    return check(
        "certificates",
        OK if found else MISSING,
        where or f"no {need.what}: nothing can be fetched",
        system.cure("certificates"),
    )


def _program(name: str) -> Check:
    path = shutil.which(name)
    version = _output([path, "--version"]) if path else None
    detail = f"{path}: {version.splitlines()[0]}" if version else f"no {name} that runs in PATH"
    return check(name, OK if version else MISSING, detail, system.cure(name))


def _bazel() -> Check:
    try:
        choice = bazel.find()
    except ArtfError as error:
        return check("bazel", MISSING, error.what, error.cure)
    if choice is None:
        detail = "no Bazel of version 4 to 7 in PATH: a build fetches bazelisk, and it a Bazel"
        return check("bazel", WARN, detail, system.cure("bazel"))
    return check("bazel", OK, f"{choice.path}: {choice.version} ({choice.why})")


def _size(count: float) -> str:
    return f"{count / _GIB:.1f} GiB"


def _disk(name: str, path: Path, cure: str) -> Check:
    there = next(p for p in (path, *path.parents) if p.exists())
    free = shutil.disk_usage(there).free
    detail = f"{path}: {_size(free)} free"
    if not os.access(there, os.W_OK):
        return check(name, MISSING, f"{detail}, not writable", cure)
    status = OK if free >= DISK_NEEDED else MISSING
    return check(name, status, detail, f"free {_size(DISK_NEEDED)}, or {cure}")


def _cache() -> Check:
    cure = "set ARTF_CACHE to a folder elsewhere"
    try:
        folder = cache_dir()
    except OSError as error:
        return check("disk for the cache", MISSING, str(error), cure)
    return _disk("disk for the cache", folder, cure)


def _memory() -> Check:
    memory = psutil.virtual_memory()
    return check(
        "memory",
        OK if memory.available >= _MEMORY_BYTES else WARN,
        f"{_size(memory.available)} of {_size(memory.total)} available",
        f"free {_size(_MEMORY_BYTES)}: compilers and three TensorFlow processes need it",
    )


def _cores() -> Check:
    usable = len(os.sched_getaffinity(0))
    return check(
        "cores",
        OK if usable > 1 else WARN,
        f"{usable} usable",
        "use at least 2: a server and a worker on one core take turns",
    )


def _shm() -> Check:
    path = Path("/dev/shm")
    if not path.is_dir():
        return check("/dev/shm", WARN, "there is none", "mount a tmpfs at /dev/shm")
    usage = shutil.disk_usage(path)
    return check(
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
    return check(
        "libibverbs",
        OK if there else WARN,
        f"libibverbs.so.1 {'loads' if there else 'does not load'}",
        f"only RDMA needs it; {system.cure('rdma')}",
    )


def _mpi() -> Check:
    found = [f"{library} ({kind})" for library, kind in _MPI.items() if _loads(library)]
    return check(
        "mpi library",
        OK if found else WARN,
        ", ".join(found) or f"none of {', '.join(_MPI)} loads",
        f"only grpc+mpi needs it; {system.cure('mpi')}",
    )


def _wheel() -> Check:
    wheels = sorted(path.name for path in DIST.glob("*.whl"))
    return check(
        "wheel",
        OK if wheels else WARN,
        ", ".join(re.sub(r"-manylinux.*", "", name) for name in wheels) or f"none in {DIST}",
        "make it: scripts/artf build",
    )


def examine(peer: str | None = None) -> dict[str, Any]:
    """Looks at this machine and changes nothing; takes a few seconds, with `peer` some more.

    {"ok": nothing that a build needs is missing, "checks": a list of `Check`, "rdma": `rdma.Rdma`},
    and with the address of a `peer` `reach.Reach` under "peer". ArtfError: that is no address.
    """
    reached = reach.look(peer) if peer is not None else None
    found = rdma.look()
    checks = [
        _python(),
        _compilers(_compiler()),
        _bazel(),
        _program("git"),
        _certificates(),
        _cache(),
        _disk("disk for dist", DIST, "check the repository out elsewhere"),
        _memory(),
        _cores(),
        rdma.memlock_check(found),
        _shm(),
        rdma.devices_check(found),
        rdma.probe_check(found),
        _verbs(),
        _mpi(),
        _wheel(),
    ]
    if reached is not None:
        checks.append(reach.reach_check(reached))
    return {
        "ok": all(each["status"] != MISSING for each in checks),
        "checks": checks,
        "rdma": found,
        **({"peer": reached} if reached is not None else {}),
    }


def _ports_table(found: rdma.Rdma) -> Table:
    table = Table(title=f"RDMA ports, by {found['source']}")
    for column in ("port", "state", "link layer", "MTU", "partition keys", "GIDs"):
        table.add_column(column, overflow="fold")
    for device in found["devices"]:
        for port in device["ports"]:
            mtus = [port["active_mtu"], port["max_mtu"]]
            table.add_row(
                f"{device['name']}/{port['port']}",
                port["state"],
                port["link_layer"],
                " of ".join(str(mtu) for mtu in mtus if mtu is not None) or "-",
                " ".join(port["pkeys"]) or "-",
                "\n".join(f"{g['index']}: {g['gid']} {g['type']}" for g in port["gids"]) or "-",
            )
    return table


def render(examination: dict[str, Any]) -> None:
    """Prints the findings as a table on standard output, each with its cure below it."""
    table = Table(title="What this machine offers")
    table.add_column("what", no_wrap=True)
    table.add_column("status")
    table.add_column("detail", overflow="fold")
    for each in examination["checks"]:
        detail = Text(each["detail"])
        if each["cure"]:
            detail.append(f"\n→ {each['cure']}", style="bold")
        status = Text(each["status"], style=_COLOUR[each["status"]])
        table.add_row(each["name"], status, detail)
    out.print(table)
    found = examination["rdma"]
    if found["devices"]:
        out.print(_ports_table(found))
    for problem in found["problems"]:
        out.print(Text(f"{problem['what']}\n→ {problem['cure']}"))
