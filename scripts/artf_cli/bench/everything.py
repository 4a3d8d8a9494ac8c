"""The speeds of docs/measured.md, one file of raw rows each, by one command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artf_cli.bench import allreduce, figures, recommender, record, recv, train
from artf_cli.cluster import STRATEGY
from artf_cli.console import stage
from artf_cli.variants import AR, MPI, MPIS, STOCK

# What the transport gives and what the threads give, told apart; see variants.py.
_TRANSPORTS = (STOCK, AR, f"{AR}/tcp")
_WAYS = (*_TRANSPORTS, f"{STOCK}/4channels", f"{STOCK}/threads")
_ROUNDS = 7
# As few as give an interval: each has a pause of some 20 seconds.
_COLD_ROUNDS = 6
_COLD_SIZES = ("empty", "4", "64KiB", "1MiB", "16MiB", "256MiB")
_MPI_WAYS = (STOCK, *(f"{MPI}/{mpi}" for mpi in MPIS), AR)
_MPI_SIZES = ("4", "1KiB", "64KiB", "1MiB", "16MiB", "64MiB")
_STRATEGY_SIZES = ("empty", "4", "64KiB", "1MiB", "16MiB", "200x16KiB")
_RING_SIZES = ("1KiB", "64KiB", "1MiB", "16MiB", "64MiB")

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Lab:
    """The Python of the built wheel's environment, and of others by their word in a label; how many
    rounds each part has, None for as many as it should."""

    python: Path
    others: Mapping[str, Path]
    rounds: int | None = None


def _recv(lab: Lab) -> Rows:
    ways = (*_WAYS, recv.UPSTREAM)
    return recv.run(
        lab.python, ways, rounds=lab.rounds or _ROUNDS, cold_rounds=0, wheels=lab.others
    )


def _recv_cold(lab: Lab) -> Rows:
    rows = recv.run(
        lab.python,
        _TRANSPORTS,
        _COLD_SIZES,
        rounds=1,
        cold_rounds=lab.rounds or _COLD_ROUNDS,
    )
    return [row for row in rows if row["metric"] == recv.COLD]


def _recv_strategy(lab: Lab) -> Rows:
    return recv.run(
        lab.python,
        _TRANSPORTS,
        _STRATEGY_SIZES,
        rounds=lab.rounds or _ROUNDS,
        cold_rounds=0,
        api=STRATEGY,
    )


def _recv_mpi(lab: Lab) -> Rows:
    # Open MPI 4's launcher gives each of two ranks a core, and so only they had one.
    return recv.run(
        lab.python,
        _MPI_WAYS,
        _MPI_SIZES,
        rounds=lab.rounds or _ROUNDS,
        cold_rounds=0,
        pin=True,
    )


def _train(lab: Lab) -> Rows:
    return train.rows_of(train.run(lab.python, _WAYS, lab.rounds or train.DEFAULT_ROUNDS))


def _recommender(lab: Lab) -> Rows:
    return recommender.run(lab.python, _TRANSPORTS, rounds=lab.rounds or recommender.DEFAULT_ROUNDS)


def _recommender_strategy(lab: Lab) -> Rows:
    return recommender.run(
        lab.python,
        (STOCK, AR),
        workers=(2,),
        rounds=lab.rounds or recommender.DEFAULT_ROUNDS,
        api=STRATEGY,
    )


def _all_reduce(lab: Lab) -> Rows:
    return allreduce.run(
        lab.python,
        _TRANSPORTS,
        _RING_SIZES,
        workers=(2, 3, 4),
        rounds=lab.rounds or allreduce.DEFAULT_ROUNDS,
    )


#: File in docs/measured/ without its ending → what measures its rows.
PARTS: dict[str, Callable[[Lab], Rows]] = {
    "recv": _recv,
    "recv-cold": _recv_cold,
    "recv-strategy": _recv_strategy,
    "recv-mpi": _recv_mpi,
    "train": _train,
    "recommender": _recommender,
    "recommender-strategy": _recommender_strategy,
    "allreduce": _all_reduce,
}


def run(
    lab: Lab,
    wheel: Path,
    wheels: Mapping[str, Path],
    folder: Path,
    command: Sequence[str],
    parts: Sequence[str] = tuple(PARTS),
) -> list[Path]:
    """Measures `parts` and writes their rows into `folder` with `figures.write`; returns the files.

    `wheel` and `wheels` are the wheels of `lab`, and `command` the command line, for the record.
    """
    files = []
    for name in parts:
        with stage(f"measure {name}"):
            made = record.record(wheel, command, wheels)
            files.append(folder / f"{name}.json")
            figures.write(files[-1], PARTS[name](lab), made)
    return files
