"""Raw figures as JSON, with the record of what they were measured on and how."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import psutil

from artf_cli import pins
from artf_cli.errors import ArtfError
from artf_cli.paths import REPO


class WheelRecord(TypedDict):
    """A wheel's file name and sha256."""

    file: str
    sha256: str


class Cores(TypedDict):
    """CPUs that this process may run on, and how many of them its control groups grant (None:
    no limit)."""

    usable: int
    quota: float | None


class Machine(TypedDict):
    """What runs a program: the processor's name, its cores, and the system's versions."""

    cpu: str
    cores: Cores
    memory_bytes: int
    kernel: str
    glibc: str


class Record(Machine):
    """Where figures come from. `commit` ends in `-dirty` where the tree differs outside docs/;
    `wheel` is None of what was measured without one; `wheels` has the other wheels that took part,
    by the word that stands behind the @ of a protocol; `load` is the load average over 1, 5 and 15
    minutes when the run began."""

    commit: str
    wheel: WheelRecord | None
    wheels: dict[str, WheelRecord]
    date: str
    command: list[str]
    load: list[float]


def _git(root: Path, *words: str) -> str:
    command = ["git", *words]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def commit(root: Path = REPO) -> str:
    """A tree's commit, with `-dirty` where files outside docs/ differ from it; or `unknown`."""
    found = _git(root, "rev-parse", "HEAD")
    if not found:
        return "unknown"
    # A run that writes docs/ must not make the next one's tree dirty.
    changed = _git(root, "status", "--porcelain", "--", ":/", ":(top,exclude)docs")
    return f"{found}-dirty" if changed else found


def files(root: Path = REPO) -> str:
    """A hash of what the tree's commit holds outside of docs/; empty where there is no commit."""
    entries = _git(root, "ls-tree", "--full-tree", "HEAD").splitlines()
    code = [entry for entry in entries if entry.partition("\t")[2] != "docs"]
    return hashlib.sha256("\n".join(code).encode()).hexdigest() if code else ""


def cpu_model(cpuinfo: str) -> str:
    """The processor's name from the text of /proc/cpuinfo; the architecture where it has none."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def cpu_quota(cgroups: str, root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """CPUs that the control groups grant, the least of all levels; None where none limits them.

    `cgroups` is the text of /proc/self/cgroup, `root` where the groups are mounted.
    """
    found: list[float] = []
    for line in cgroups.splitlines():
        number, controllers, path = line.split(":", 2)
        second = number == "0" and not controllers
        if not second and "cpu" not in controllers.split(","):
            continue
        mounted = root if second else root / "cpu"
        group = mounted / path.lstrip("/")
        for level in (group, *group.parents):
            found += _v2_quota(level) if second else _v1_quota(level)
            if level == mounted:
                break
    return min(found, default=None)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _v2_quota(group: Path) -> list[float]:
    words = _words(group / "cpu.max")
    return [int(words[0]) / int(words[1])] if len(words) == 2 and words[0] != "max" else []


def _v1_quota(group: Path) -> list[float]:
    quota, period = (_words(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    return [int(quota[0]) / int(period[0])] if quota and period and int(quota[0]) > 0 else []


def wheel_record(path: Path) -> WheelRecord:
    """What names a wheel."""
    return WheelRecord(file=path.name, sha256=pins.sha256_of(path))


def _without_folders(words: Sequence[str]) -> list[str]:
    """The words with absolute paths cut to file names: where they lie is this machine's affair."""
    kept = []
    for word in words:
        option, equals, value = word.rpartition("=")
        kept.append(option + equals + (Path(value).name if value.startswith("/") else value))
    return kept


def machine() -> Machine:
    """This machine, as this process may use it."""
    return Machine(
        cpu=cpu_model(Path("/proc/cpuinfo").read_text()),
        cores=Cores(
            usable=len(os.sched_getaffinity(0)),
            quota=cpu_quota(Path("/proc/self/cgroup").read_text()),
        ),
        memory_bytes=psutil.virtual_memory().total,
        kernel=platform.release(),
        glibc=platform.libc_ver()[1],
    )


def now() -> str:
    """The time in UTC to the second, as records have it."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def record(
    wheel: Path | None, command: Sequence[str], wheels: Mapping[str, Path] | None = None
) -> Record:
    """The record of a run that begins now with `wheel`, if any, and, by name, other `wheels`."""
    return Record(
        commit=commit(),
        wheel=wheel_record(wheel) if wheel else None,
        wheels={name: wheel_record(path) for name, path in (wheels or {}).items()},
        date=now(),
        command=_without_folders(command),
        load=[round(value, 2) for value in os.getloadavg()],
        **machine(),
    )


def write(path: Path, rows: Sequence[Mapping[str, Any]], made: Record) -> None:
    """Writes `rows` with their record, a line each; the file is there whole or as it was."""
    lines = ",\n".join("  " + json.dumps(row, sort_keys=True) for row in rows)
    text = f'{{"record": {json.dumps(made, indent=1)},\n "rows": [\n{lines}\n]}}\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_text(text)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def read(path: Path) -> tuple[list[dict[str, Any]], Record]:
    """(rows, record) of a file that `write` made; ArtfError names one that has no record."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise ArtfError(f"{path} is missing", "make it with: scripts/artf bench all") from None
    try:
        whole = json.loads(text)
    except ValueError:
        whole = None
    made = whole.get("record") if isinstance(whole, dict) else None
    if not isinstance(made, dict) or not isinstance(whole.get("rows"), list):
        raise ArtfError(
            f"{path} has no rows with a record", "make it again with: scripts/artf bench all"
        )
    missing = sorted(Record.__required_keys__ - set(made))
    if missing:
        raise ArtfError(
            f"{path}: its record lacks {', '.join(missing)}",
            "make it again with: scripts/artf bench all",
        )
    return whole["rows"], made  # type: ignore[return-value]
