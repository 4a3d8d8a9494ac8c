"""The `train` suite: LeNet on handwritten digits, one parameter server and two workers.

All protocols are started once and then take turns, a round of steps each. The quickstart is one
such run.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypedDict

from artf_cli import variants
from artf_cli.bench.intervals import compare, spread
from artf_cli.cluster import Answer, Cluster, leave_all, observed_paths
from artf_cli.errors import ArtfError
from artf_cli.progress import Meter
from artf_cli.supervise import Group, log_folder
from artf_cli.variants import STOCK

LEAST_ACCURACY = 0.95
DEFAULT_ROUNDS = 9
DEFAULT_STEPS = 100
WORKERS = 2
_WARM_STEPS = 5
_TRIES = 3


@dataclass
class Trained:
    """A protocol's training: steps of both workers a second in each round, the share of held-out
    digits read right, bytes that all processes sent, and the path of each peer of the server."""

    protocol: str
    steps_per_second: list[float] = field(default_factory=list)
    accuracy: float = 0.0
    bytes_sent: int = 0
    paths: dict[str, str] = field(default_factory=dict)


class Row(TypedDict):
    """One training; `spread` has the least and the greatest round against the median, `ratio` is
    its steps a second over stock grpc's, by `intervals.compare`."""

    bench: str
    scheme: str
    protocol: str
    wheel: str
    api: str
    metric: str
    workers: int
    fabric: str
    median: float
    samples: list[float]
    spread: list[float]
    ratio: float | None
    ratio_interval: list[float] | None
    accuracy: float


def rows_of(trained: Sequence[Trained]) -> list[Row]:
    """A row for each training."""
    stock = [one.steps_per_second for one in trained if one.protocol == STOCK]
    rows = []
    for one in trained:
        found = compare(one.steps_per_second, stock[0]) if stock else None
        interval = found.interval if found else None
        rows.append(
            Row(
                bench="train",
                scheme="lenet",
                protocol=one.protocol,
                wheel="built",
                api="session",
                metric="steps_per_second",
                workers=WORKERS,
                fabric="+".join(sorted(set(one.paths.values()))),
                median=round(statistics.median(one.steps_per_second), 1),
                samples=[round(value, 1) for value in one.steps_per_second],
                spread=[round(end, 3) for end in spread(one.steps_per_second)],
                ratio=round(found.ratio, 3) if found else None,
                ratio_interval=[round(end, 3) for end in interval] if interval else None,
                accuracy=round(one.accuracy, 4),
            )
        )
    return rows


def check(protocols: Sequence[str]) -> None:
    """Raises ArtfError when these cannot be trained over."""
    if not protocols:
        raise ArtfError("nothing to measure", "give at least one protocol")
    for name in protocols:
        if variants.parse(name).wheel:
            raise ArtfError(f"{name} has no wheel to run", "give protocols without an @")


def run(
    python: Path,
    protocols: Sequence[str],
    rounds: int = DEFAULT_ROUNDS,
    steps: int = DEFAULT_STEPS,
) -> list[Trained]:
    """Trains over each protocol with the wheel in `python`'s environment.

    `steps` is the number of batches that each of the two workers trains in a round. Raises
    ArtfError when a process fails or the accuracy stays below 0.95.
    """
    check(protocols)
    names = list(dict.fromkeys(protocols))
    with log_folder("train") as logs, Group(logs) as group:
        clusters = {name: Cluster(group, python, "train_lenet.py", name, WORKERS) for name in names}
        with Meter("LeNet", len(names) * rounds) as meter:
            meter.show(0, "starting")
            trainings = [_Training(cluster) for cluster in clusters.values()]
            for turn in range(rounds):
                order = trainings if turn % 2 == 0 else trainings[::-1]
                for place, training in enumerate(order):
                    training.round(steps, partial(meter.show, turn * len(names) + place))
            # While all connections are still open.
            trained = [training.finish() for training in trainings]
        leave_all(group, list(clusters.values()))
        for one in trained:
            if one.accuracy < LEAST_ACCURACY:
                raise ArtfError(
                    f"LeNet over {one.protocol} reads {one.accuracy:.1%} of the held-out digits "
                    f"right, less than {LEAST_ACCURACY:.0%}",
                    f"run again; if it stays so, tensors arrive wrong: read the logs in {logs}",
                )
    return trained


class _Training:
    """One cluster's training, and what it gave so far."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._steps = 0
        self._trained = Trained(cluster.variant.label)
        cluster.serve()
        self._before = cluster.report()
        self._built = cluster.ask(cluster.workers, "build", workers=WORKERS)
        cluster.ask(cluster.workers[:1], "initialise")
        # The first steps connect and allocate: start-up, not training speed.
        self._train(_WARM_STEPS)

    def round(self, steps: int, show: Callable[[str], None]) -> None:
        """Trains `steps` batches in each worker, timed; again where a step had to be run again."""
        name = self._trained.protocol
        for _ in range(_TRIES):
            answers = self._train(steps, show)
            if not any(answer["repeated"] for answer in answers.values()):
                begin = min(answer["begin"] for answer in answers.values())
                end = max(answer["end"] for answer in answers.values())
                self._trained.steps_per_second.append(WORKERS * steps / (end - begin))
                return
        raise ArtfError(
            f"LeNet over {name} ran steps again in each of {_TRIES} rounds", "train fewer --steps"
        )

    def _train(self, steps: int, show: Callable[[str], None] | None = None) -> dict[str, Answer]:
        def on_progress(task: str, answer: Answer) -> None:
            if show is not None:
                show(f"over {self._trained.protocol}, loss {answer['loss']:.4f}")

        answers = self._cluster.ask(self._cluster.workers, "train", on_progress, steps=steps)
        self._steps += steps
        return answers

    def finish(self) -> Trained:
        """The whole training, with its accuracy and the path of each worker's bytes."""
        first = self._cluster.workers[0]
        self._trained.accuracy = self._cluster.ask([first], "evaluate")[first]["accuracy"]
        after = self._cluster.report()
        # Every step pulls every parameter once.
        pulled = {task: self._steps * each["parameter_bytes"] for task, each in self._built.items()}
        self._trained.bytes_sent = sum(answer["bytes_sent"] for answer in after.values())
        self._trained.paths = observed_paths(self._before, after, pulled)
        return self._trained
