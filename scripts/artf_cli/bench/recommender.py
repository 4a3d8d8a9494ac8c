"""The `recommender` suite: a parameter server's real step, pulls and pushes in one.

Every worker pulls all tensors of a mix and pushes as the mix says. All protocols are started at
once and take turns; a round gives each of them one burst with each mix and number of workers.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypedDict

import psutil

from artf_cli import variants
from artf_cli.bench import intervals
from artf_cli.bench.mixes import MIXES, Mix
from artf_cli.bench.table import duration, times, without_lines
from artf_cli.bench.traffic import agreed, carrier
from artf_cli.cluster import BESIDE, PROCESS_BYTES, PS, SESSION, STRATEGY, Cluster, leave_all
from artf_cli.console import out
from artf_cli.errors import ArtfError
from artf_cli.progress import Meter
from artf_cli.supervise import Group, log_folder

DEFAULT_PROTOCOLS = ("grpc", "grpc+ar", "grpc+ar/tcp")
DEFAULT_WORKERS = (1, 2, 4)
DEFAULT_ROUNDS = 6
STEPS_PER_SECOND = "steps_per_second"
P99_US = "p99_us"
PS_CPU_S_PER_STEP = "ps_cpu_s_per_step"
METRICS = (STEPS_PER_SECOND, P99_US, PS_CPU_S_PER_STEP)
_SCRIPTS = {SESSION: "recommender_worker.py", STRATEGY: "recommender_strategy.py"}
_BURST_S = 0.5
_LEAST_STEPS = 3
_START_IN_S = 0.01
_CHECK_COPIES = 8


class Case(NamedTuple):
    """What a burst measures."""

    variant: str
    mix: str
    workers: int


@dataclass
class Measured:
    """What the rounds of a case gave: a value of each metric a round, and the time of all steps."""

    rounds: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in METRICS})
    steps: int = 0
    steps_us: list[float] = field(default_factory=list)
    fabrics: list[str] = field(default_factory=list)


class Row(TypedDict):
    """One metric of one case of one protocol.

    `bytes` and `tensors` are what a step moves, both ways; `samples` has a value for each round and
    `value` is their median, except that `p99_us` is of all rounds' steps together. `ratio` against
    stock grpc is above 1 where this row is better; it and `ratio_interval` are of the rounds, by
    `intervals.compare`.
    """

    bench: str
    api: str
    protocol: str
    scheme: str
    workers: int
    bytes: int
    tensors: int
    fabric: str
    metric: str
    value: float
    samples: list[float]
    steps: int
    ratio: float | None
    ratio_interval: list[float] | None


def run(
    python: Path,
    protocols: Sequence[str] = DEFAULT_PROTOCOLS,
    mixes: Sequence[str] = tuple(MIXES),
    workers: Sequence[int] = DEFAULT_WORKERS,
    rounds: int = DEFAULT_ROUNDS,
    api: str = SESSION,
    progress: bool = True,
) -> list[Row]:
    """Measures every mix with every number of workers over every protocol.

    Raises ArtfError on a bad argument, when a process fails, and when the sums that the parameter
    server ends with are not those of all steps.
    """
    names, chosen, counts = check(protocols, mixes, workers, api)
    if rounds < 1:
        raise ArtfError("nothing to measure", "give at least one round")
    measured: dict[Case, Measured] = {}
    # A coordinator uses all workers of its cluster, so each number of them needs one of its own.
    fleets = [[count] for count in counts] if api == STRATEGY else [counts]
    _check_memory(chosen, len(names), max(counts))
    bursts = rounds * len(counts) * len(chosen) * len(names)
    with Meter("recommender", bursts, progress) as meter:
        for fleet in fleets:
            with log_folder("recommender") as logs, Group(logs) as group:
                clusters = {
                    name: Cluster(group, python, _SCRIPTS[api], name, max(fleet), BESIDE[api])
                    for name in names
                }
                _measure(clusters, chosen, fleet, rounds, meter, measured)
                leave_all(group, list(clusters.values()))
    order = [Case(n, mix.name, count) for mix in chosen for count in counts for n in names]
    return rows_of(api, {case: measured[case] for case in order})


def check(
    protocols: Sequence[str], mixes: Sequence[str], workers: Sequence[int], api: str
) -> tuple[list[str], list[Mix], list[int]]:
    """What these arguments of `run` ask for, each once; ArtfError says what cannot be measured."""
    names = variants.of_this_wheel(protocols)
    if api == STRATEGY:
        variants.for_strategy(names)
    for mix in mixes:
        if mix not in MIXES:
            raise ArtfError(f"there is no mix {mix!r}", f"choose among {', '.join(MIXES)}")
    chosen = [MIXES[mix] for mix in dict.fromkeys(mixes)]
    counts = sorted(set(workers))
    if not names or not chosen or not counts or counts[0] < 1:
        raise ArtfError("nothing to measure", "give at least one protocol, one mix and one worker")
    return names, chosen, counts


def _check_memory(mixes: Sequence[Mix], protocols: int, workers: int) -> None:
    # The server keeps every mix; a step in hand has its tensors at both ends, for each worker.
    tensors = sum(mix.total_bytes for mix in mixes)
    tensors += 2 * workers * max(mix.total_bytes for mix in mixes)
    need = _CHECK_COPIES * max(mix.pulled_bytes for mix in mixes)
    need += protocols * (tensors + (workers + 2) * PROCESS_BYTES)
    have = psutil.virtual_memory().available
    if need > have:
        raise ArtfError(
            f"these clusters need {need >> 20} MiB of memory and {have >> 20} MiB are free",
            "choose fewer --workers, --protocols or --mixes",
        )


def _measure(
    clusters: Mapping[str, Cluster],
    mixes: Sequence[Mix],
    fleet: Sequence[int],
    rounds: int,
    meter: Meter,
    measured: dict[Case, Measured],
) -> None:
    """Runs all rounds of clusters that are started and have the greatest number of `fleet`."""
    meter.show(_done(measured), "starting")
    for cluster in clusters.values():
        cluster.serve()
    # Steps that each cluster has done of each mix: what its sums must be in the end.
    steps = {(name, mix.name): 0 for name in clusters for mix in mixes}
    for name, cluster in clusters.items():
        for mix in mixes:
            meter.show(_done(measured), f"making {mix.name} over {name}")
            cluster.ask(
                cluster.drivers,
                "mix",
                name=mix.name,
                pulls=mix.pulls,
                updates=mix.updates,
                ids=mix.ids,
            )
            cluster.ask(cluster.drivers[:1], "initialise", name=mix.name)
            _check_sums(cluster, mix.name, 0)
    for count, mix, name in _turns(list(clusters), mixes, fleet, rounds):
        meter.show(_done(measured), f"{mix.name} with {count} over {name}")
        case = Case(name, mix.name, count)
        into = measured.setdefault(case, Measured())
        steps[name, mix.name] += _burst(clusters[name], mix, count, into)
    for (name, key), total in steps.items():
        meter.show(_done(measured), f"checking {key} over {name}")
        _check_sums(clusters[name], key, total)


def _check_sums(cluster: Cluster, mix: str, steps: int) -> None:
    # One after the other: a check holds several copies of what it pulls.
    for driver in cluster.drivers:
        cluster.ask([driver], "check", name=mix, steps=steps)


def _done(measured: Mapping[Case, Measured]) -> int:
    return sum(len(each.fabrics) for each in measured.values())


def _turns(
    names: Sequence[str], mixes: Sequence[Mix], fleet: Sequence[int], rounds: int
) -> Iterator[tuple[int, Mix, str]]:
    """Every burst in order: protocols take turns, and who begins changes from round to round."""
    for turn in range(rounds):
        for count in fleet:
            for mix in mixes:
                for name in names if turn % 2 == 0 else reversed(names):
                    yield count, mix, name


def _burst(cluster: Cluster, mix: Mix, workers: int, into: Measured) -> int:
    """One burst of a case; returns the steps that it did, those before the timed ones too."""
    active = cluster.workers[:workers]
    drivers = active if cluster.drivers == cluster.workers else cluster.drivers
    warmed = cluster.ask(drivers, "warm", name=mix.name)
    before = cluster.report()
    spent = cluster.cpu_seconds_of(PS)
    answers = cluster.ask(
        drivers,
        "burst",
        name=mix.name,
        start=time.monotonic() + _START_IN_S,
        seconds=_BURST_S,
        least=_LEAST_STEPS,
    )
    spent = cluster.cpu_seconds_of(PS) - spent
    after = cluster.report()
    steps = sum(answer["steps"] for answer in answers.values())
    steps_us = [us for answer in answers.values() for us in answer["samples_us"]]
    rate = sum(answer["steps"] / answer["seconds"] for answer in answers.values())
    pulled = carrier(before, after, [(PS, task) for task in active], steps * mix.pulled_bytes)
    pushed = carrier(before, after, [(task, PS) for task in active], steps * mix.pushed_bytes)
    into.rounds[STEPS_PER_SECOND].append(rate)
    into.rounds[P99_US].append(percentile(steps_us, 99))
    into.rounds[PS_CPU_S_PER_STEP].append(spent / steps)
    into.steps += steps
    into.steps_us += steps_us
    into.fabrics.append(agreed([pulled, pushed]))
    return int(steps + sum(answer["steps"] for answer in warmed.values()))


def percentile(values: Sequence[float], percent: int) -> float:
    """The nearest-rank percentile: the least value that `percent` of all do not exceed."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


def rows_of(api: str, measured: Mapping[Case, Measured]) -> list[Row]:
    """The rows of all metrics, in the order of the cases."""
    rows = []
    for case, ours in measured.items():
        mix = MIXES[case.mix]
        stock = measured.get(case._replace(variant=variants.STOCK))
        for metric in METRICS:
            if metric == PS_CPU_S_PER_STEP and not mix.total_bytes:
                continue  # the parameter server has no part in it
            compared = _compare(ours, stock, metric) if stock else None
            interval = compared.interval if compared else None
            rows.append(
                Row(
                    bench="recommender",
                    api=api,
                    protocol=case.variant,
                    scheme=case.mix,
                    workers=case.workers,
                    bytes=mix.total_bytes,
                    tensors=len(mix.pulls) + len(mix.pushes),
                    fabric=agreed(ours.fabrics),
                    metric=metric,
                    value=_digits(_value(ours, metric)),
                    samples=[_digits(each) for each in ours.rounds[metric]],
                    steps=ours.steps,
                    ratio=round(compared.ratio, 3) if compared else None,
                    ratio_interval=[round(end, 3) for end in interval] if interval else None,
                )
            )
    return rows


def _value(measured: Measured, metric: str) -> float:
    if metric == P99_US:
        return percentile(measured.steps_us, 99)
    return statistics.median(measured.rounds[metric])


def _compare(ours: Measured, stock: Measured, metric: str) -> intervals.Comparison | None:
    """How much better than stock a metric is; None where one of the two never used any CPU."""
    over, under = (ours, stock) if metric == STEPS_PER_SECOND else (stock, ours)
    if not all(over.rounds[metric] + under.rounds[metric]):
        return None
    return intervals.compare(over.rounds[metric], under.rounds[metric])


def _digits(value: float) -> float:
    """`value` with six significant digits: more than any of these figures has."""
    return float(f"{value:.6g}")


def render(rows: Sequence[Row]) -> None:
    """Prints the rows as a table on standard output, a line for each case."""
    table = without_lines("A recommender's step: pulls and pushes in one")
    for column in ("mix", "MB", "workers", "protocol", "path"):
        table.add_column(column, no_wrap=True)
    for column in ("steps/s", "p99", "server's CPU a step"):
        table.add_column(column, justify="right")
    cases: dict[tuple[str, int, str], dict[str, Row]] = {}
    for row in rows:
        case = row["scheme"], row["workers"], row["protocol"]
        cases.setdefault(case, {})[row["metric"]] = row
    for (scheme, workers, protocol), metrics in cases.items():
        first = next(iter(metrics.values()))
        shown = [_cell(metrics[name]) if name in metrics else "-" for name in METRICS]
        megabytes = f"{first['bytes'] / 1e6:.1f}"
        table.add_row(scheme, megabytes, str(workers), protocol, first["fabric"], *shown)
    out.print(table)


def _cell(row: Row) -> str:
    """A figure as people read it, and how it compares: `9.7 ms` over `2.10x (1.90-2.31)`."""
    value = row["value"]
    if row["metric"] == STEPS_PER_SECOND:
        text = f"{value:.3g}" if value < 100 else f"{value:.0f}"
    else:
        text = duration(value if row["metric"] == P99_US else value * 1e6)
    return f"{text}\n{times(row['ratio'], row['ratio_interval'])}" if row["ratio"] else text
