"""The `recv` suite: one transfer a step from the parameter server's memory to a worker.

All protocols are started once and then take turns, so that what else the machine does falls on
each of them alike. What the copy of a large tensor takes also differs from start to start (as the
memory does that servers get, it seems), and rounds of one start cannot show that: `fresh` does.
Servers that start first then get the slower memory, as one wheel beside itself shows, so who starts
first changes, too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import psutil

from artf_cli import variants
from artf_cli.bench.intervals import LEAST_ROUNDS, compare, spread
from artf_cli.bench.sizes import Size, apart, parse_size
from artf_cli.cluster import (
    BESIDE,
    PROCESS_BYTES,
    SESSION,
    STRATEGY,
    Answer,
    Cluster,
    leave_all,
    observed_paths,
)
from artf_cli.errors import ArtfError
from artf_cli.peer.client import Peer
from artf_cli.progress import Meter
from artf_cli.supervise import Group, log_folder
from artf_cli.variants import AGAINST_WHEEL, STOCK, UPSTREAM_WHEEL

UPSTREAM = f"{STOCK}@{UPSTREAM_WHEEL}"
DEFAULT_SIZES = ("empty", "4", "1KiB", "64KiB", "1MiB", "16MiB", "64MiB", "256MiB", "32x64KiB")
DEFAULT_ROUNDS = 7
DEFAULT_COLD_ROUNDS = LEAST_ROUNDS
#: Metrics: a step among others, and the first one after the pause that makes memory cold.
STEP = "step"
COLD = "cold"
_LEAST_STEPS = 3
_MOST_STEPS = 100
_BURST_S = 0.25
_WORKER = "worker:0"
_SCRIPTS = {SESSION: "recv_worker.py", STRATEGY: "recv_strategy.py"}
# The arena gives back what lay unused for ten seconds, and looks every ten.
_PAUSE_S = 10.0
_MOST_PAUSE_S = 40.0

#: A protocol, as `variants.parse` takes it, and what it moves in each step.
Case = tuple[str, Size]


@dataclass
class Samples:
    """What a case gave: µs of steps (a round's median each), µs of cold ones, and what the steps
    took of the CPUs."""

    fabric: str
    steps_us: list[float] = field(default_factory=list)
    cold_us: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    steps: int = 0

    def of(self, metric: str) -> list[float]:
        """The samples of STEP or COLD."""
        return self.steps_us if metric == STEP else self.cold_us


class Row(TypedDict):
    """The result of one metric of one case.

    `spread` has the least and the greatest sample against the median: [-0.1, 0.2]. `ratio` is stock
    grpc's time over this one's, `against` the same protocol's of the wheel of `--against` over
    this one's, the median of the rounds' (`intervals.compare`); an interval holds the true one with
    95% (None of fewer than six rounds).
    `cpu_us_per_step` is what all processes spent together, `cpu_s_per_gb` the same over the
    gigabytes (10^9 bytes) that they moved.
    """

    bench: str
    protocol: str
    wheel: str
    api: str
    metric: str
    bytes: int
    tensors: int
    fabric: str
    median_us: float
    samples_us: list[float]
    spread: list[float]
    ratio: float | None
    ratio_interval: list[float] | None
    against: float | None
    against_interval: list[float] | None
    cpu_us_per_step: float | None
    cpu_s_per_gb: float | None


def rows_of(samples: Mapping[Case, Samples], api: str = SESSION) -> list[Row]:
    """The rows by metric, then by size and in the protocols' order."""
    return [
        _row(samples, case, metric, api)
        for metric in (STEP, COLD)
        for case in samples
        if samples[case].of(metric)
    ]


def _row(samples: Mapping[Case, Samples], case: Case, metric: str, api: str) -> Row:
    label, size = case
    variant = variants.parse(label)
    own = samples[case]
    ratio, interval = _against(samples, (STOCK, size), case, metric)
    old = (variant.on(AGAINST_WHEEL).label, size)
    against, against_interval = (
        _against(samples, old, case, metric) if not variant.wheel else (None, None)
    )
    cpu_us = own.cpu_s / own.steps * 1e6 if metric == STEP else None
    return Row(
        bench="recv",
        protocol=label,
        wheel=variant.wheel or "built",
        api=api,
        metric=metric,
        bytes=size.bytes,
        tensors=size.tensors,
        fabric=own.fabric,
        median_us=round(statistics.median(own.of(metric)), 1),
        samples_us=[round(value, 1) for value in own.of(metric)],
        spread=[round(end, 3) for end in spread(own.of(metric))],
        ratio=ratio,
        ratio_interval=interval,
        against=against,
        against_interval=against_interval,
        cpu_us_per_step=round(cpu_us, 1) if cpu_us is not None else None,
        cpu_s_per_gb=round(cpu_us / size.total * 1e3, 4) if cpu_us and size.total else None,
    )


def _against(
    samples: Mapping[Case, Samples], baseline: Case, case: Case, metric: str
) -> tuple[float | None, list[float] | None]:
    if baseline not in samples:
        return None, None
    ratio, interval = compare(samples[baseline].of(metric), samples[case].of(metric))
    return round(ratio, 3), [round(end, 3) for end in interval] if interval else None


def labels(protocols: Sequence[str], wheels: Collection[str]) -> list[str]:
    """The variants to run: `protocols` in order, with those that each of `wheels` adds.

    `wheels` are words for the wheels beside the built one, `upstream` or `against`. Raises
    ArtfError when a protocol is none, or names a wheel that is not there.
    """
    names = list(dict.fromkeys(protocols))
    if UPSTREAM_WHEEL in wheels and UPSTREAM not in names:
        names.append(UPSTREAM)
    if AGAINST_WHEEL in wheels:
        own = [variants.parse(name) for name in names]
        names += [one.on(AGAINST_WHEEL).label for one in own if not one.wheel]
    for name in names:
        word = variants.parse(name).wheel
        if word and word not in wheels:
            raise ArtfError(f"{name} has no wheel to run", f"give --{word}")
    return list(dict.fromkeys(names))


def _check_memory(
    sizes: Sequence[Size], protocols: int, tasks: int, have: int, where: str = ""
) -> None:
    # Every server keeps each case; a check in hand holds a few more copies of its tensor.
    need = protocols * (sum(s.total for s in sizes) + max(s.total for s in sizes))
    need += protocols * tasks * PROCESS_BYTES
    need += 4 * max(s.bytes for s in sizes)
    if need > have:
        raise ArtfError(
            f"these sizes need {need >> 20} MiB of memory and {have >> 20} MiB are free{where}",
            "choose smaller ones with --sizes, or fewer protocols with --protocols",
        )


def run(
    python: Path,
    protocols: Sequence[str] = (STOCK, "grpc+ar"),
    sizes: Sequence[str] = DEFAULT_SIZES,
    tensors: int = 1,
    rounds: int = DEFAULT_ROUNDS,
    cold_rounds: int = DEFAULT_COLD_ROUNDS,
    progress: bool = True,
    wheels: Mapping[str, Path] | None = None,
    api: str = SESSION,
    peer: Peer | None = None,
    peer_memory: int = 0,
    pin: bool = False,
    fresh: bool = False,
    watch: Callable[[Mapping[str, Cluster]], None] = lambda clusters: None,
) -> list[Row]:
    """Measures every size over every protocol of the wheel in `python`'s environment.

    Each of `rounds` rounds gives one sample of a case: the median time of its steps, in µs; each of
    `cold_rounds` one of its first step after an idle pause. `wheels` has Pythons of other wheels'
    environments by their words: the untouched one's grpc takes part as `grpc@upstream`, and each
    protocol of the older one as `…@against`. `api` is one of `cluster.APIS`. With `peer`, which has
    so many bytes of memory free, the parameter servers run there. With `pin` every task has cores
    of its own, with `fresh` every round has servers of its own (and the cold rounds the last
    one's). `watch` gets the clusters by their labels at the end. Raises ArtfError on a bad
    argument, when a process fails, and when the bytes of a round take another path than the first
    ones did.
    """
    wheels = wheels or {}
    names = labels(protocols, wheels)
    if api == STRATEGY:
        variants.for_strategy(names)
    if not names or not sizes or rounds < 1 or cold_rounds < 0:
        raise ArtfError("nothing to measure", "give at least one protocol, one size and one round")
    cases = list(dict.fromkeys(parse_size(text, tensors) for text in sizes))
    if peer is None:
        tasks = 1 + len(BESIDE[api])
        _check_memory(cases, len(names), tasks, psutil.virtual_memory().available)
    else:
        # A worker holds one case at a time.
        largest = [max(cases, key=lambda size: size.total)]
        _check_memory(largest, len(names), 1, psutil.virtual_memory().available)
        _check_memory(cases, len(names), 1, peer_memory, f" on {peer.address}")
    turns = range(rounds)
    starts = [turns[i : i + 1] for i in turns] if fresh else [turns]
    total = (rounds + cold_rounds + 2 * len(starts)) * len(cases) * len(names)
    with Meter("recv", total, progress) as meter:
        measured = _Run(cases, names, meter)
        for start in starts:
            with log_folder("recv") as logs, Group(logs) as group:
                clusters = {
                    name: Cluster(
                        group,
                        wheels.get(variants.parse(name).wheel, python),
                        _SCRIPTS[api],
                        name,
                        workers=1,
                        beside=BESIDE[api],
                        peer=peer,
                    )
                    # Each order of two starts, since a round's own changes with each of them.
                    for name in _by_turns(names, start[0] // 2)
                }
                measured.prepare(clusters, logs, pin)
                for turn in start:
                    measured.round(turn)
                last = start is starts[-1]
                for turn in range(cold_rounds if last else 0):
                    measured.cold_round(turn)
                measured.check()
                if last:
                    watch(clusters)
                leave_all(group, list(clusters.values()))
    return rows_of(measured.samples, api)


def _by_turns(names: Sequence[str], turn: int) -> Sequence[str]:
    """The protocols in the order of a turn: every other one begins with the last."""
    return names[:: 1 if turn % 2 == 0 else -1]


class _Run:
    """The clusters that a run has now, and what all that it had gave so far."""

    def __init__(self, cases: Sequence[Size], names: Sequence[str], meter: Meter) -> None:
        self._names = names
        self._clusters: Mapping[str, Cluster] = {}
        self._logs = Path()
        self._cases = cases
        self._meter = meter
        self._done = 0
        self.samples: dict[Case, Samples] = {}

    def _show(self, text: str) -> None:
        self._meter.show(self._done, text)
        self._done += 1

    def prepare(self, clusters: Mapping[str, Cluster], logs: Path, pin: bool) -> None:
        """Starts the servers and makes every case in the workers, which check what arrives."""
        self._clusters, self._logs = clusters, logs
        for cluster in self._clusters.values():
            cluster.serve()
            if pin:
                cluster.pin()
        for number, size in enumerate(self._cases):
            for name, cluster in self._clusters.items():
                self._show(f"checking {size} over {name}")
                before = cluster.report()
                made = _tell(cluster, "case", size=size.bytes, tensors=size.tensors, seed=number)
                assert made["case"] == number
                self._check_path((name, size), "the check", before, size.total)

    def check(self) -> None:
        """The cases shared a server all the while: none may have got another's values."""
        for number, size in enumerate(self._cases):
            for name, cluster in self._clusters.items():
                self._show(f"checking {size} over {name} again")
                _tell(cluster, "check", case=number)

    def round(self, turn: int) -> None:
        """Adds a sample to every case: the median of a burst of steps."""
        for number, size in enumerate(self._cases):
            for name in _by_turns(self._names, turn):
                self._show(f"round {turn + 1}: {size} over {name}")
                _tell(self._clusters[name], "warm", case=number)
                taken, cpu_s = self._watch(
                    f"round {turn + 1}",
                    (name, size),
                    "burst",
                    least=_LEAST_STEPS,
                    most=_MOST_STEPS,
                    seconds=_BURST_S,
                )
                own = self.samples[name, size]
                own.cpu_s += cpu_s
                own.steps += len(taken)
                own.steps_us.append(float(statistics.median(taken)))

    def cold_round(self, turn: int) -> None:
        """Adds a sample to every case: its first step after an idle pause."""
        for group in apart(self._cases):
            self._pause()
            for size in group:
                for name in _by_turns(self._names, turn):
                    self._show(f"cold round {turn + 1}: {size} over {name}")
                    taken, _ = self._watch(f"cold round {turn + 1}", (name, size), "cold")
                    self.samples[name, size].cold_us += taken

    def _pause(self) -> None:
        """Waits until no worker's arena holds free memory that is warm."""
        self._meter.show(self._done, "an idle pause")
        begin = time.monotonic()
        time.sleep(_PAUSE_S)
        for name, cluster in self._clusters.items():
            while warm := cluster.report()[_WORKER]["warm_free_bytes"]:
                if time.monotonic() - begin > _MOST_PAUSE_S:
                    raise ArtfError(
                        f"{name} keeps {warm} free bytes after {_MOST_PAUSE_S:.0f} idle seconds",
                        "measure without cold steps: --cold-rounds 0",
                    )
                time.sleep(1)

    def _watch(
        self, when: str, case: Case, command: str, **fields: Any
    ) -> tuple[list[float], float]:
        """Lets the worker run steps; returns µs of each, and CPU seconds of both tasks.

        Raises ArtfError when their bytes did not take the case's path.
        """
        name, size = case
        cluster = self._clusters[name]
        before = cluster.report()
        begin = cluster.cpu_seconds()
        answer = _tell(cluster, command, case=self._cases.index(size), **fields)
        cpu_s = cluster.cpu_seconds() - begin
        taken: list[float] = answer["samples_us"]
        self._check_path(case, when, before, len(taken) * size.total)
        return taken, cpu_s

    def _check_path(
        self, case: Case, when: str, before: Mapping[str, Answer], payload: int
    ) -> None:
        """Raises ArtfError unless `payload` bytes since `before` took the same path as the case's
        first ones, which decide it."""
        name, size = case
        path = observed_paths(before, self._clusters[name].report(), {_WORKER: payload})[_WORKER]
        expected = self.samples.setdefault(case, Samples(path)).fabric
        if path != expected:
            raise ArtfError(
                f"{size} over {name} took the path {path} in {when}, {expected} before",
                f"see why in the tasks' logs, {self._logs}",
            )


def _tell(cluster: Cluster, command: str, **fields: Any) -> Answer:
    """The answer of the one task that runs steps."""
    (answer,) = cluster.ask(cluster.drivers, command, **fields).values()
    return answer
