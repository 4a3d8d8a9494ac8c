"""The quickstart: LeNet on handwritten digits, over every protocol, then a transfer comparison."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from rich.table import Table

from artf_cli.bench import recv, train
from artf_cli.bench.intervals import LEAST_ROUNDS
from artf_cli.bench.table import render
from artf_cli.console import note, out

PROTOCOLS = ("grpc", "grpc+ar")
# Of train.DEFAULT_STEPS batches in each worker.
_ROUNDS = 6
_TRANSFER_SIZES = ("1MiB", "16MiB", "64MiB")
_TRANSFER_ROUNDS = LEAST_ROUNDS


class Run(TypedDict):
    """One training: steps of both workers a second, the share of held-out digits read right,
    bytes that all processes sent, and the path of each peer of the parameter server."""

    protocol: str
    steps_per_second: float
    accuracy: float
    bytes_sent: int
    paths: dict[str, str]


def run(python: Path, protocols: Sequence[str] = PROTOCOLS, rounds: int = _ROUNDS) -> list[Run]:
    """Trains over each protocol with the wheel in `python`'s environment, protocols taking turns.

    Steps a second are the median of `rounds` rounds. Raises ArtfError when a process fails or the
    accuracy stays below 0.95.
    """
    runs = []
    for one in train.run(python, protocols, rounds):
        result = Run(
            protocol=one.protocol,
            steps_per_second=round(statistics.median(one.steps_per_second), 1),
            accuracy=round(one.accuracy, 4),
            bytes_sent=one.bytes_sent,
            paths=one.paths,
        )
        note(
            f"LeNet over {one.protocol}: {result['steps_per_second']} steps/s, "
            f"{one.accuracy:.1%} right"
        )
        runs.append(result)
    return runs


def transfer(python: Path, protocols: Sequence[str] = PROTOCOLS) -> list[recv.Row]:
    """The short comparison: 1, 16 and 64 MiB from server to worker over each protocol."""
    return recv.run(python, protocols, _TRANSFER_SIZES, rounds=_TRANSFER_ROUNDS, cold_rounds=0)


def render_runs(runs: Sequence[Run]) -> None:
    """Prints the trainings as a table on standard output."""
    table = Table(title="LeNet on handwritten digits: 1 parameter server, 2 workers")
    table.add_column("protocol")
    for column in ("steps/s", "MB sent", "accuracy"):
        table.add_column(column, justify="right")
    table.add_column("path per peer")
    for one in runs:
        table.add_row(
            one["protocol"],
            f"{one['steps_per_second']:.1f}",
            f"{one['bytes_sent'] / 1e6:.1f}",
            f"{one['accuracy']:.1%}",
            "\n".join(f"{peer} {path}" for peer, path in one["paths"].items()),
        )
    out.print(table)


def render_transfer(rows: Sequence[recv.Row]) -> None:
    """Prints the transfer comparison as a table on standard output."""
    render(rows)
