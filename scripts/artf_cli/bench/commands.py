"""The commands `scripts/artf bench …`."""

from __future__ import annotations

from pathlib import Path

import click

from artf_cli import build, fetch, pins, venv
from artf_cli.bench import recv
from artf_cli.console import emit_json
from artf_cli.options import base_option, json_option, python_option


@click.group(name="bench")
def bench_group() -> None:
    """Measures protocols side by side in one run."""


def _split(context: click.Context, option: click.Parameter, value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


@bench_group.command(name="recv")
@click.option("--protocols", default="grpc,grpc+ar", show_default=True, callback=_split)
@click.option("--sizes", default=",".join(recv.DEFAULT_SIZES), show_default=True, callback=_split)
@click.option("--tensors", type=click.IntRange(1, 4096), default=1, show_default=True)
@click.option("--rounds", type=click.IntRange(1, 1000), default=recv.DEFAULT_ROUNDS)
@click.option("--upstream", is_flag=True, help="Add stock grpc of upstream's untouched wheel.")
@base_option
@python_option
@json_option
def bench_recv(
    protocols: list[str],
    sizes: list[str],
    tensors: int,
    rounds: int,
    upstream: bool,
    base: str,
    python: str | None,
    as_json: bool,
) -> None:
    """One transfer a step, parameter server to worker, protocols taking turns."""
    for size in sizes:
        recv.parse_size(size)
    built = build.build(base, python)
    installed = venv.make(built.wheel)
    baseline = venv.make(_upstream_wheel(base, built.wheel)) if upstream else None
    rows = recv.run(installed, protocols, sizes, tensors, rounds=rounds, baseline_python=baseline)
    if as_json:
        emit_json({"rows": rows})
    else:
        recv.render(rows)


def _upstream_wheel(base: str, ours: Path) -> Path:
    manifest = pins.load()
    pin = manifest.wheel(base, ours.name.split("-")[2])
    return fetch.wheel(pin, manifest.sources["tensorflow"].version)
