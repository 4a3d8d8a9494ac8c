"""The commands `scripts/artf bench …`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from artf_cli import build, fetch, pins, variants, venv
from artf_cli.bench import (
    allreduce,
    everything,
    figures,
    hostile,
    peers,
    recommender,
    record,
    recv,
    table,
    train,
)
from artf_cli.bench.mixes import MIXES
from artf_cli.bench.sizes import parse_size
from artf_cli.cluster import APIS, SESSION
from artf_cli.console import emit_json, note, out
from artf_cli.options import (
    base_option,
    json_option,
    list_option,
    python_here_option,
    split_words,
)
from artf_cli.peer.channel import parse_address
from artf_cli.peer.client import Peer
from artf_cli.variants import AGAINST_WHEEL, AR, STOCK, UPSTREAM_WHEEL

_F = TypeVar("_F", bound=Callable[..., Any])
_Row = TypeVar("_Row", bound=Mapping[str, Any])


@click.group(name="bench")
def bench_group() -> None:
    """Measures protocols side by side in one run."""


def _numbers(context: click.Context, option: click.Parameter, value: str) -> list[int]:
    words = split_words(context, option, value)
    if not words or not all(word.isdigit() for word in words):
        raise click.BadParameter(f"{value!r} is no list of numbers such as 1,2,4")
    return [int(word) for word in words]


def _rounds_option(default: int) -> Callable[[_F], _F]:
    return click.option(
        "--rounds", type=click.IntRange(1, 1000), default=default, show_default=True
    )


output_option = click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the rows there as JSON, with a record of the machine and the run.",
)

api_option = click.option(
    "--api",
    type=click.Choice(APIS),
    default=APIS[0],
    show_default=True,
    help="TensorFlow 1's session, or ParameterServerStrategy with a coordinator.",
)


def command_line() -> list[str]:
    """The command that runs now, as a record has it."""
    return ["scripts/artf", *sys.argv[1:]]


def upstream_wheel(base: str, ours: Path) -> Path:
    """Upstream's untouched wheel for the same Python as `ours`, fetched if need be."""
    manifest = pins.load()
    pin = manifest.wheel(base, ours.name.split("-")[2])
    return fetch.wheel(pin, manifest.sources["tensorflow"].version)


@bench_group.command(name="recv")
@list_option(
    "--protocols",
    (STOCK, AR),
    help="Also grpc+mpi, grpc+mpi/openmpi, grpc+ar/tcp, grpc/4channels, grpc/threads, "
    "grpc@upstream.",
)
@list_option("--sizes", recv.DEFAULT_SIZES)
@click.option("--tensors", type=click.IntRange(1, 4096), default=1, show_default=True)
@_rounds_option(recv.DEFAULT_ROUNDS)
@click.option(
    "--cold-rounds",
    type=click.IntRange(0, 1000),
    default=recv.DEFAULT_COLD_ROUNDS,
    show_default=True,
    help="First steps after idle pauses of some 20 seconds each; 0 leaves them out.",
)
@click.option("--upstream", is_flag=True, help="Add stock grpc of upstream's untouched wheel.")
@click.option(
    "--against",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="WHEEL",
    help="Run every protocol of this older wheel, too, taking turns.",
)
@click.option(
    "--pin",
    is_flag=True,
    help="Pin each task to cores of its own: a quieter comparison, of what the scheduler would "
    "not do by itself.",
)
@click.option(
    "--fresh",
    is_flag=True,
    help="Start the servers anew for each round, so that the intervals cover what differs from "
    "start to start.",
)
@api_option
@click.option(
    "--peer",
    metavar="HOST:PORT",
    help="Between two hosts: where `artf bench serve` listens on the other one.",
)
@peers.wheel_option
@output_option
@base_option
@python_here_option
@json_option
def bench_recv(
    protocols: list[str],
    sizes: list[str],
    tensors: int,
    rounds: int,
    cold_rounds: int,
    upstream: bool,
    against: Path | None,
    pin: bool,
    fresh: bool,
    api: str,
    peer: str | None,
    wheel: Path | None,
    output: Path | None,
    base: str,
    python: str | None,
    as_json: bool,
) -> None:
    """One transfer a step, parameter server to worker, protocols taking turns.

    With --peer the parameter servers run on another host and the workers on this one, over
    whatever connects the two: on the other host `scripts/artf bench serve` prints what to run here.
    """
    for size in sizes:
        parse_size(size)
    if peer is not None:
        if upstream or against or pin or fresh or api != SESSION:
            raise click.UsageError(
                "--peer is without --upstream, --against, --pin, --fresh and --api"
            )
        parse_address(peer)
        peers.token()
        recv.labels(protocols, ())
        settings = {"protocols": protocols, "sizes": sizes, "tensors": tensors}
        settings.update(rounds=rounds, cold_rounds=cold_rounds)
        _recv_from(peer, peers.find_wheel(wheel, base, python), settings, output, as_json)
        return
    words = [UPSTREAM_WHEEL]
    if against:
        words.append(AGAINST_WHEEL)
    recv.labels(protocols, words)
    built = peers.find_wheel(wheel, base, python)
    wheels: dict[str, Path] = {}
    if upstream or any(variants.parse(one).wheel == UPSTREAM_WHEEL for one in protocols):
        wheels[UPSTREAM_WHEEL] = upstream_wheel(base, built)
    if against:
        wheels[AGAINST_WHEEL] = against
    pythons = {word: venv.make(wheel) for word, wheel in wheels.items()}
    installed = venv.make(built)
    made = record.record(built, command_line(), wheels)
    rows = recv.run(
        installed,
        protocols,
        sizes,
        tensors,
        rounds=rounds,
        cold_rounds=cold_rounds,
        wheels=pythons,
        api=api,
        pin=pin,
        fresh=fresh,
    )
    deliver(rows, made, output, as_json, table.render)


def _recv_from(
    address: str, wheel: Path, settings: Mapping[str, Any], output: Path | None, as_json: bool
) -> None:
    """`bench recv` between two hosts."""
    made = record.record(wheel, command_line())
    with Peer(address, peers.token()) as peer:
        watch = peers.Watch(peer, made)
        rows = recv.run(
            venv.make(wheel),
            **settings,
            peer=peer,
            peer_memory=watch.hosts["peer"]["memory_free_bytes"],
            watch=watch.look,
        )
        whole = watch.record()
    deliver(rows, whole, output, as_json, table.render)
    if not as_json:
        peers.render(whole)
    peers.hint(rows)


@bench_group.command(name="train")
@list_option("--protocols", (STOCK, AR))
@_rounds_option(train.DEFAULT_ROUNDS)
@click.option(
    "--steps",
    type=click.IntRange(1, 100_000),
    default=train.DEFAULT_STEPS,
    show_default=True,
    help="Batches that each worker trains in a round.",
)
@output_option
@base_option
@python_here_option
@json_option
def bench_train(
    protocols: list[str],
    rounds: int,
    steps: int,
    output: Path | None,
    base: str,
    python: str | None,
    as_json: bool,
) -> None:
    """LeNet on handwritten digits, one parameter server, two workers, protocols taking turns."""
    train.check(protocols)
    installed, made = _measured_on(base, python)
    rows = train.rows_of(train.run(installed, protocols, rounds, steps))
    deliver(rows, made, output, as_json, table.render_train)


@bench_group.command(name="all")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=figures.FOLDER,
    show_default="docs/measured",
    help="The folder of raw rows.",
)
@click.option(
    "--only",
    "parts",
    type=click.Choice(list(everything.PARTS)),
    multiple=True,
    help="Measure this part alone; may be repeated.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 1000),
    help="Rounds of every part, for a quick look [default: as many as give intervals].",
)
@base_option
@python_here_option
def bench_all(
    output: Path, parts: tuple[str, ...], rounds: int | None, base: str, python: str | None
) -> None:
    """Measures what docs/measured.md shows, and writes its tables anew.

    For a machine that has nothing else to do. The rest is made by `bench hostile`, and by the tests
    that docs/measured.md and docs/rdma.md name.
    """
    built = build.build(base, python).wheel
    wheels = {UPSTREAM_WHEEL: upstream_wheel(base, built)}
    others = {word: venv.make(wheel) for word, wheel in wheels.items()}
    lab = everything.Lab(venv.make(built), others, rounds)
    chosen = parts or tuple(everything.PARTS)
    for path in everything.run(lab, built, wheels, output, command_line(), chosen):
        out.print(f"raw rows: {path}", soft_wrap=True)


@bench_group.command(name="render")
def bench_render() -> None:
    """Writes the tables of figures in docs/ anew from the raw rows in docs/measured."""
    for page in figures.render_pages():
        out.print(f"tables: {page}", soft_wrap=True)


def _measured_on(base: str, python: str | None) -> tuple[Path, record.Record]:
    """The Python of the built wheel's environment, and the record of a run that begins now."""
    built = build.build(base, python).wheel
    installed = venv.make(built)
    return installed, record.record(built, command_line())


def deliver(
    rows: Sequence[_Row],
    made: record.Record,
    output: Path | None,
    as_json: bool,
    render: Callable[[Sequence[_Row]], None],
) -> None:
    """Writes the rows with their record to `output`, and as the result object or by `render`."""
    if output:
        figures.write(output, rows, made)
        note(f"raw rows: {output}")
    if as_json:
        emit_json({"rows": rows, "record": made})
    else:
        render(rows)


@bench_group.command(name="recommender")
@list_option("--protocols", recommender.DEFAULT_PROTOCOLS)
@list_option("--mixes", list(MIXES))
@list_option("--workers", recommender.DEFAULT_WORKERS, callback=_numbers)
@_rounds_option(recommender.DEFAULT_ROUNDS)
@api_option
@output_option
@base_option
@python_here_option
@json_option
def bench_recommender(
    protocols: list[str],
    mixes: list[str],
    workers: list[int],
    rounds: int,
    api: str,
    output: Path | None,
    base: str,
    python: str | None,
    as_json: bool,
) -> None:
    """A recommender's step: pulls and pushes of its tensors in one, by mix and workers."""
    recommender.check(protocols, mixes, workers, api)
    installed, made = _measured_on(base, python)
    rows = recommender.run(installed, protocols, mixes, workers, rounds, api)
    deliver(rows, made, output, as_json, recommender.render)


@bench_group.command(name="allreduce")
@list_option("--protocols", allreduce.DEFAULT_PROTOCOLS)
@list_option("--sizes", allreduce.DEFAULT_SIZES)
@list_option("--workers", allreduce.DEFAULT_WORKERS, callback=_numbers)
@_rounds_option(allreduce.DEFAULT_ROUNDS)
@output_option
@base_option
@python_here_option
@json_option
def bench_allreduce(
    protocols: list[str],
    sizes: list[str],
    workers: list[int],
    rounds: int,
    output: Path | None,
    base: str,
    python: str | None,
    as_json: bool,
) -> None:
    """All-reduces around a ring of workers (MultiWorkerMirroredStrategy)."""
    allreduce.check(protocols, sizes, workers)
    installed, made = _measured_on(base, python)
    rows = allreduce.run(installed, protocols, sizes, workers, rounds)
    deliver(rows, made, output, as_json, allreduce.render)


@bench_group.command(name="hostile")
@_rounds_option(hostile.DEFAULT_ROUNDS)
@click.option(
    "--against",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="WHEEL",
    help="Attack grpc+ar of this older wheel, too.",
)
@output_option
@base_option
@python_here_option
@json_option
def bench_hostile(
    rounds: int,
    against: Path | None,
    output: Path | None,
    base: str,
    python: str | None,
    as_json: bool,
) -> None:
    """What attacks over plain HTTP/2 cost a server in CPU time and memory."""
    built = build.build(base, python).wheel
    installed = venv.make(built)
    pythons = {AR: installed, STOCK: installed}
    wheels = {AGAINST_WHEEL: against} if against else {}
    if against:
        pythons = {f"{AR}@{AGAINST_WHEEL}": venv.make(against), **pythons}
    made = record.record(built, command_line(), wheels)
    rows = hostile.run(pythons, rounds=rounds)
    deliver(rows, made, output, as_json, hostile.render)


bench_group.add_command(peers.serve_command)
