"""The quickstart: LeNet on handwritten digits, over every protocol, then a transfer comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from rich.table import Table

from artf_cli.bench import recv
from artf_cli.bench.table import render
from artf_cli.cluster import Answer, Cluster, leave_all, observed_paths
from artf_cli.console import note, out
from artf_cli.errors import ArtfError
from artf_cli.progress import Meter
from artf_cli.supervise import Group, log_folder

PROTOCOLS = ("grpc", "grpc+ar")
LEAST_ACCURACY = 0.95
_WORKERS = 2
_STEPS = 600
_WARM_STEPS = 5
_TRANSFER_SIZES = ("1MiB", "16MiB", "64MiB")
_TRANSFER_ROUNDS = 3


class Run(TypedDict):
    """One training: steps of both workers a second, the share of held-out digits read right,
    bytes that all processes sent, and the path of each peer of the parameter server."""

    protocol: str
    steps_per_second: float
    accuracy: float
    bytes_sent: int
    paths: dict[str, str]


def run(python: Path, protocols: Sequence[str] = PROTOCOLS, steps: int = _STEPS) -> list[Run]:
    """Trains once over each protocol with the wheel in `python`'s environment.

    `steps` is the number of batches that each of the two workers trains in the measured time.
    Raises ArtfError when a process fails or the accuracy stays below 0.95.
    """
    return [train(python, protocol, steps) for protocol in dict.fromkeys(protocols)]


def train(python: Path, protocol: str, steps: int = _STEPS) -> Run:
    """Trains with one parameter server and two workers over `protocol`; as `run`."""
    with log_folder("quickstart") as logs, Group(logs) as group:
        cluster = Cluster(group, python, "train_lenet.py", protocol, _WORKERS)
        with Meter(f"LeNet over {protocol}", _WORKERS * steps) as meter:
            meter.show(0, "starting")
            cluster.serve()
            before = cluster.report()
            built = cluster.ask(cluster.workers, "build", workers=_WORKERS)
            cluster.ask(cluster.workers[:1], "initialise")
            # The first steps connect and allocate: start-up, not training speed.
            cluster.ask(cluster.workers, "train", steps=_WARM_STEPS)
            done = dict.fromkeys(cluster.workers, 0)

            def on_progress(task: str, answer: Answer) -> None:
                done[task] = answer["step"]
                meter.show(sum(done.values()), f"loss {answer['loss']:.4f}")

            trained = cluster.ask(cluster.workers, "train", on_progress, steps=steps)
            accuracy = cluster.ask(cluster.workers[:1], "evaluate")[cluster.workers[0]]["accuracy"]
        # While all connections are still open.
        after = cluster.report()
        leave_all(group, [cluster])
        begin = min(answer["begin"] for answer in trained.values())
        end = max(answer["end"] for answer in trained.values())
        # Every step pulls every parameter once.
        pulled = {
            task: (steps + _WARM_STEPS) * built[task]["parameter_bytes"] for task in cluster.workers
        }
        result = Run(
            protocol=protocol,
            steps_per_second=round(_WORKERS * steps / (end - begin), 1),
            accuracy=round(accuracy, 4),
            bytes_sent=sum(answer["bytes_sent"] for answer in after.values()),
            paths=observed_paths(before, after, pulled),
        )
        if accuracy < LEAST_ACCURACY:
            raise ArtfError(
                f"LeNet over {protocol} reads {accuracy:.1%} of the held-out digits right, "
                f"less than {LEAST_ACCURACY:.0%}",
                f"run again; if it stays so, tensors arrive wrong: read the logs in {logs}",
            )
    note(f"LeNet over {protocol}: {result['steps_per_second']} steps/s, {accuracy:.1%} right")
    return result


def transfer(python: Path, protocols: Sequence[str] = PROTOCOLS) -> list[recv.Row]:
    """The ten-second comparison: 1, 16 and 64 MiB from server to worker over each protocol."""
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
