"""The `recv` suite: one transfer a step from the parameter server's memory to a worker.

All protocols are started once and then take turns, so that what else the machine does falls on
each of them alike.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import psutil
from rich.table import Table

from artf_cli.cluster import Cluster, leave_all, observed_paths
from artf_cli.console import out
from artf_cli.errors import ArtfError
from artf_cli.progress import Meter
from artf_cli.supervise import Group, log_folder

STOCK = "grpc"
UPSTREAM = "grpc@upstream"
DEFAULT_SIZES = ("4", "1KiB", "64KiB", "1MiB", "16MiB", "64MiB", "256MiB", "32x64KiB")
DEFAULT_ROUNDS = 5
_LEAST_STEPS = 3
_MOST_STEPS = 100
_BURST_S = 0.25
_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_SIZE = re.compile(r"(?:(\d{1,4})x)?(\d{1,15})(b|[kmg]ib)?", re.IGNORECASE)
_WORKER = "worker:0"


@dataclass(frozen=True)
class Size:
    """`tensors` tensors of `bytes` bytes each, in every step."""

    bytes: int
    tensors: int = 1

    @property
    def total(self) -> int:
        """Bytes that travel in a step."""
        return self.bytes * self.tensors

    def __str__(self) -> str:
        value, unit = self.bytes, "B"
        for larger in ("KiB", "MiB", "GiB"):
            if value % 1024:
                break
            value, unit = value // 1024, larger
        return f"{f'{self.tensors}x' if self.tensors > 1 else ''}{value} {unit}"


#: A protocol and what it moves in each step.
Case = tuple[str, Size]


@dataclass
class Spent:
    """What all bursts of a case took of the CPUs, and what they moved."""

    cpu_s: float = 0.0
    bytes: int = 0

    @property
    def cpu_s_per_gb(self) -> float:
        """CPU seconds for each 10^9 bytes."""
        return self.cpu_s / self.bytes * 1e9


class Row(TypedDict):
    """The result of one case of one protocol.

    `ratio` is stock grpc's median over this one's; `cpu_s_per_gb` the CPU seconds that both
    processes spent, over the gigabytes (10^9 bytes) that they moved.
    """

    bench: str
    protocol: str
    bytes: int
    tensors: int
    fabric: str
    median_us: float
    samples_us: list[float]
    ratio: float | None
    cpu_s_per_gb: float


def parse_size(text: str, tensors: int = 1) -> Size:
    """A size such as `4`, `64KiB`, `256MiB` or `32x64KiB`; `tensors` is the count without an `x`.

    Raises ArtfError, which says what is accepted.
    """
    found = _SIZE.fullmatch(text.strip())
    size = None
    if found:
        count = int(found.group(1)) if found.group(1) else tensors
        size = Size(int(found.group(2)) * _UNITS[(found.group(3) or "").lower()], count)
    if size is None or size.bytes < 1 or size.tensors < 1:
        raise ArtfError(
            f"{text!r} is not a size",
            "give bytes (4), KiB, MiB or GiB (64KiB), or tensors x size (32x64KiB)",
        )
    return size


def _check_memory(sizes: Sequence[Size], protocols: int) -> None:
    # Every server keeps each case; a check in hand holds a few more copies of its tensor.
    need = protocols * (sum(s.total for s in sizes) + max(s.total for s in sizes))
    need += 4 * max(s.bytes for s in sizes)
    have = psutil.virtual_memory().available
    if need > have:
        raise ArtfError(
            f"these sizes need {need >> 20} MiB of memory and {have >> 20} MiB are free",
            "choose smaller ones with --sizes, or fewer protocols with --protocols",
        )


def rows_of(
    samples: Mapping[Case, list[float]],
    fabrics: Mapping[Case, str],
    spent: Mapping[Case, Spent],
) -> list[Row]:
    """The rows of per-round medians in µs, by size and then in the protocols' order."""
    rows: list[Row] = []
    for (protocol, size), values in samples.items():
        median = statistics.median(values)
        stock = samples.get((STOCK, size))
        rows.append(
            Row(
                bench="recv",
                protocol=protocol,
                bytes=size.bytes,
                tensors=size.tensors,
                fabric=fabrics[protocol, size],
                median_us=round(median, 1),
                samples_us=[round(value, 1) for value in values],
                ratio=round(statistics.median(stock) / median, 3) if stock else None,
                cpu_s_per_gb=round(spent[protocol, size].cpu_s_per_gb, 4),
            )
        )
    return rows


def run(
    python: Path,
    protocols: Sequence[str] = (STOCK, "grpc+ar"),
    sizes: Sequence[str] = DEFAULT_SIZES,
    tensors: int = 1,
    rounds: int = DEFAULT_ROUNDS,
    progress: bool = True,
    baseline_python: Path | None = None,
) -> list[Row]:
    """Measures every size over every protocol of the wheel in `python`'s environment.

    Each of `rounds` rounds gives one sample of a case: the median time of its steps, in µs. With
    `baseline_python`, whose environment has the untouched upstream wheel, that wheel's grpc takes
    part as `grpc@upstream`. Raises ArtfError on a bad argument, and when a process fails.
    """
    names = list(dict.fromkeys(protocols))
    if baseline_python is not None and UPSTREAM not in names:
        names.append(UPSTREAM)
    if UPSTREAM in names and baseline_python is None:
        raise ArtfError(f"{UPSTREAM} has no wheel to run", "name the baseline's Python")
    if not names or not sizes or rounds < 1:
        raise ArtfError("nothing to measure", "give at least one protocol, one size and one round")
    cases = list(dict.fromkeys(parse_size(text, tensors) for text in sizes))
    _check_memory(cases, len(names))
    with log_folder("recv") as logs, Group(logs) as group:
        clusters = {
            name: Cluster(
                group,
                baseline_python if name == UPSTREAM and baseline_python is not None else python,
                "recv_worker.py",
                name,
                workers=1,
            )
            for name in names
        }
        steps = (rounds + 2) * len(cases) * len(names)
        with Meter("recv", steps, progress) as meter:
            for cluster in clusters.values():
                cluster.serve()
            fabrics: dict[Case, str] = {}
            for number, size in enumerate(cases):
                for name, cluster in clusters.items():
                    meter.show(len(fabrics), f"checking {size} over {name}")
                    fabrics[name, size] = _prepare(cluster, size, number)
            samples: dict[Case, list[float]] = {
                (name, size): [] for size in cases for name in names
            }
            spent = {case: Spent() for case in samples}
            done = len(fabrics)
            for turn in range(rounds):
                for number, size in enumerate(cases):
                    for name in names if turn % 2 == 0 else reversed(names):
                        meter.show(done, f"round {turn + 1}: {size} over {name}")
                        case = name, size
                        samples[case].append(_burst(clusters[name], number, size, spent[case]))
                        done += 1
            # The cases shared a server all the while: none may have got another's values.
            for number, size in enumerate(cases):
                for name, cluster in clusters.items():
                    meter.show(done, f"checking {size} over {name} again")
                    cluster.ask([_WORKER], "check", case=number)
                    done += 1
        leave_all(group, list(clusters.values()))
    return rows_of(samples, fabrics, spent)


def _prepare(cluster: Cluster, size: Size, number: int) -> str:
    """Makes the case in the worker, which checks what arrives; returns the path it took."""
    before = cluster.report()
    made = cluster.ask([_WORKER], "case", size=size.bytes, tensors=size.tensors, seed=number)
    assert made[_WORKER]["case"] == number
    return observed_paths(before, cluster.report(), {_WORKER: size.total})[_WORKER]


def _burst(cluster: Cluster, number: int, size: Size, spent: Spent) -> float:
    """The median time of a burst's steps in µs; adds what they took to `spent`."""
    cluster.ask([_WORKER], "warm", case=number)
    before = cluster.cpu_seconds()
    answer = cluster.ask(
        [_WORKER], "burst", case=number, least=_LEAST_STEPS, most=_MOST_STEPS, seconds=_BURST_S
    )
    samples = answer[_WORKER]["samples_us"]
    spent.cpu_s += cluster.cpu_seconds() - before
    spent.bytes += len(samples) * size.total
    return float(statistics.median(samples))


def duration(us: float) -> str:
    """A time in µs as people read it: `640 µs`, `9.7 ms`, `1.2 s`."""
    if us < 1000:
        return f"{us:.0f} µs"
    return f"{us / 1000:.1f} ms" if us < 1e6 else f"{us / 1e6:.2f} s"


def render(rows: Sequence[Row], title: str = "") -> None:
    """Prints the rows as a table on standard output."""
    table = Table(title=title or "One transfer a step, parameter server to worker")
    table.add_column("size")
    table.add_column("protocol")
    table.add_column("path")
    for column in ("median", "rounds", "against grpc", "CPU s/GB"):
        table.add_column(column, justify="right")
    last = ""
    for row in rows:
        size = str(Size(row["bytes"], row["tensors"]))
        low, high = (f(row["samples_us"]) / row["median_us"] - 1 for f in (min, max))
        table.add_row(
            size if size != last else "",
            row["protocol"],
            row["fabric"],
            duration(row["median_us"]),
            f"{low:+.0%} … {high:+.0%}",
            f"{row['ratio']:.2f}x" if row["ratio"] is not None else "-",
            f"{row['cpu_s_per_gb']:.3g}",
        )
        last = size
    out.print(table)
