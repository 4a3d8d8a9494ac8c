"""The `allreduce` suite: MultiWorkerMirroredStrategy sums a tensor around a ring of workers.

All protocols are started at once and take turns, one number of workers after the other.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict

import psutil

from artf_cli import variants
from artf_cli.bench import intervals
from artf_cli.bench.sizes import Size, parse_size
from artf_cli.bench.table import duration, spread_of, times, without_lines
from artf_cli.bench.traffic import agreed, carrier
from artf_cli.cluster import PROCESS_BYTES, Answer, Cluster, leave_all
from artf_cli.console import out
from artf_cli.errors import ArtfError
from artf_cli.progress import Meter
from artf_cli.supervise import Group, log_folder

DEFAULT_PROTOCOLS = ("grpc", "grpc+ar", "grpc+ar/tcp")
DEFAULT_SIZES = ("1KiB", "16KiB", "256KiB", "1MiB", "4MiB", "16MiB", "64MiB")
DEFAULT_WORKERS = (2, 3, 4)
DEFAULT_ROUNDS = 6
_BURST_S = 0.25
_LEAST_STEPS = 3
_MOST_STEPS = 100
_SETTLE_STEPS = 3
_FLOAT = 4


class Case(NamedTuple):
    """What a burst measures."""

    variant: str
    bytes: int
    workers: int


class Row(TypedDict):
    """The result of one case of one protocol.

    `median_us` is the median over the rounds of the time of one all-reduce, each round's in
    `samples_us`; `algorithm_gb_per_s` the tensor's bytes (10^9) over that time. `ratio` and
    `ratio_interval` are stock grpc's time over this one's, by `intervals.compare`.
    """

    bench: str
    api: str
    protocol: str
    workers: int
    bytes: int
    tensors: int
    fabric: str
    median_us: float
    samples_us: list[float]
    algorithm_gb_per_s: float
    ratio: float | None
    ratio_interval: list[float] | None


def run(
    python: Path,
    protocols: Sequence[str] = DEFAULT_PROTOCOLS,
    sizes: Sequence[str] = DEFAULT_SIZES,
    workers: Sequence[int] = DEFAULT_WORKERS,
    rounds: int = DEFAULT_ROUNDS,
    progress: bool = True,
) -> list[Row]:
    """Measures an all-reduce of every size with every number of workers over every protocol.

    Raises ArtfError on a bad argument, when a process fails, and when a sum is wrong.
    """
    names, chosen, counts = check(protocols, sizes, workers)
    if rounds < 1:
        raise ArtfError("nothing to measure", "give at least one round")
    _check_memory(chosen, len(names), counts[-1])
    samples: dict[Case, list[float]] = {
        Case(name, size, count): [] for count in counts for size in chosen for name in names
    }
    fabrics: dict[Case, list[str]] = {case: [] for case in samples}
    with Meter("allreduce", rounds * len(samples), progress) as meter:
        for count in counts:
            with log_folder("allreduce") as logs, Group(logs) as group:
                clusters = {
                    name: Cluster(group, python, "all_reduce_worker.py", name, count, beside=())
                    for name in names
                }
                _measure(clusters, chosen, rounds, meter, samples, fabrics)
                leave_all(group, list(clusters.values()))
    return rows_of(samples, fabrics)


def check(
    protocols: Sequence[str], sizes: Sequence[str], workers: Sequence[int]
) -> tuple[list[str], list[int], list[int]]:
    """What these arguments of `run` ask for, each once; ArtfError says what cannot be measured."""
    names = variants.of_this_wheel(protocols)
    variants.for_strategy(names)
    chosen = list(dict.fromkeys(_check_size(text) for text in sizes))
    counts = sorted(set(workers))
    if not names or not chosen or not counts:
        raise ArtfError("nothing to measure", "give at least one protocol, one size and one ring")
    if counts[0] < 2:
        raise ArtfError("a ring needs two workers", "give --workers of 2 and more")
    return names, chosen, counts


def _check_size(text: str) -> int:
    size = parse_size(text)
    if size.tensors != 1 or size.bytes % _FLOAT:
        raise ArtfError(f"{text!r} is no size of one tensor of float32", "give a multiple of 4")
    return size.bytes


def _check_memory(sizes: Sequence[int], protocols: int, workers: int) -> None:
    # Each worker keeps every value; a check in hand holds one for each worker, and their sum.
    need = protocols * workers * (PROCESS_BYTES + sum(sizes)) + workers * (workers + 4) * max(sizes)
    have = psutil.virtual_memory().available
    if need > have:
        raise ArtfError(
            f"these workers need {need >> 20} MiB of memory and {have >> 20} MiB are free",
            "choose smaller --sizes, fewer --workers or fewer --protocols",
        )


def _measure(
    clusters: Mapping[str, Cluster],
    sizes: Sequence[int],
    rounds: int,
    meter: Meter,
    samples: dict[Case, list[float]],
    fabrics: dict[Case, list[str]],
) -> None:
    """Runs all rounds of one number of workers."""

    def show(note: str) -> None:
        meter.show(sum(len(each) for each in samples.values()), note)

    show("starting")
    for cluster in clusters.values():
        cluster.serve()
    steps: dict[tuple[str, int], int] = {}
    for size in sizes:
        for name, cluster in clusters.items():
            show(f"checking {Size(size)} over {name}")
            cluster.ask(cluster.workers, "case", size=size)
            cluster.ask(cluster.workers, "check", size=size)
            steps[name, size] = _count(_times(cluster, size, _SETTLE_STEPS))
    for turn in range(rounds):
        for size in sizes:
            for name in clusters if turn % 2 == 0 else reversed(list(clusters)):
                cluster = clusters[name]
                case = Case(name, size, len(cluster.workers))
                show(f"round {turn + 1}: {Size(size)} among {case.workers} over {name}")
                _times(cluster, size, 1)
                before = cluster.report()
                times = _times(cluster, size, steps[name, size])
                samples[case].append(statistics.median(times))
                fabrics[case].append(ring_carrier(before, cluster.report(), size * len(times)))
    for size in sizes:
        for name, cluster in clusters.items():
            show(f"checking {Size(size)} over {name} again")
            cluster.ask(cluster.workers, "check", size=size)


def _times(cluster: Cluster, size: int, steps: int) -> list[float]:
    """The times of `steps` all-reduces in µs: of each, the mean over the workers."""
    answers = cluster.ask(cluster.workers, "burst", size=size, steps=steps)
    each = zip(*(answer["samples_us"] for answer in answers.values()))
    return [statistics.fmean(times) for times in each]


def _count(times: Sequence[float]) -> int:
    """How many all-reduces fill a burst: all workers must do as many."""
    wanted = round(_BURST_S * 1e6 / min(times))
    return max(_LEAST_STEPS, min(_MOST_STEPS, wanted))


def ring_carrier(before: Mapping[str, Answer], after: Mapping[str, Answer], reduced: int) -> str:
    """The fabric between all workers, which reduced `reduced` bytes, as `carrier`."""
    # The order of the ring is TensorFlow's, and half of a large tensor goes round the other way.
    pairs = [
        (peer, task) for task in after for peer in after[task]["fabrics"] or after if peer != task
    ]
    # Each worker gets every chunk but its own twice: summed so far, then summed.
    return carrier(before, after, pairs, 2 * (len(after) - 1) * reduced)


def rows_of(
    samples: Mapping[Case, Sequence[float]], fabrics: Mapping[Case, Sequence[str]]
) -> list[Row]:
    """The rows of per-round medians in µs, in the order of the cases."""
    rows = []
    for case, ours in samples.items():
        median = statistics.median(ours)
        stock = samples.get(case._replace(variant=variants.STOCK))
        compared = intervals.compare(stock, ours) if stock else None
        interval = compared.interval if compared else None
        rows.append(
            Row(
                bench="allreduce",
                api="strategy",
                protocol=case.variant,
                workers=case.workers,
                bytes=case.bytes,
                tensors=1,
                fabric=agreed(fabrics[case]),
                median_us=round(median, 1),
                samples_us=[round(value, 1) for value in ours],
                algorithm_gb_per_s=float(f"{case.bytes / median / 1000:.4g}"),
                ratio=round(compared.ratio, 3) if compared else None,
                ratio_interval=[round(end, 3) for end in interval] if interval else None,
            )
        )
    return rows


def render(rows: Sequence[Row]) -> None:
    """Prints the rows as a table on standard output."""
    table = without_lines("All-reduce around a ring, MultiWorkerMirroredStrategy")
    for column in ("workers", "size", "protocol", "path"):
        table.add_column(column)
    for column in ("median", "rounds", "GB/s", "against grpc"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            str(row["workers"]),
            str(Size(row["bytes"])),
            row["protocol"],
            row["fabric"],
            duration(row["median_us"]),
            spread_of(row["samples_us"]),
            f"{row['algorithm_gb_per_s']:.3g}",
            times(row["ratio"], row["ratio_interval"]),
        )
    out.print(table)
