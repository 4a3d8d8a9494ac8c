"""The commands of `scripts/artf`: a wrong flag exits 2, a failure exits 1 with one line."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from artf_cli import build as build_module
from artf_cli import doctor as doctor_module
from artf_cli import interpreters, quickstart, venv
from artf_cli import patches as patches_module
from artf_cli.bench import train
from artf_cli.bench.commands import bench_group
from artf_cli.console import emit_json, err, note, out, stage
from artf_cli.containers import bases, engine, images, training
from artf_cli.errors import ArtfError
from artf_cli.mpis import mpi_command
from artf_cli.options import (
    base_option,
    json_option,
    list_option,
    local_build_options,
    python_option,
    refuse_local,
)
from artf_cli.testing import full as full_module
from artf_cli.testing import report
from artf_cli.testing import run as testing
from artf_cli.testing.suites import NAMES, PART_MINUTES, PARTS
from artf_cli.vm import vm_command

_container = click.option(
    "--container", is_flag=True, help="Build, and train, in containers (Docker or podman)."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Builds, tests and measures the RDMA-enhanced TensorFlow wheel."""


@main.command(name="quickstart")
@base_option
@python_option
@local_build_options
@_container
@click.option(
    "--layout",
    type=click.Choice(training.LAYOUTS),
    help="What the containers share [default: volume].",
)
@list_option(
    "--protocols",
    quickstart.PROTOCOLS,
    help="Also grpc+mpi, and where there is an RDMA device grpc+verbs.",
)
@json_option
@click.pass_context
def quickstart_command(
    context: click.Context,
    base: str,
    python: str | None,
    container: bool,
    layout: str | None,
    protocols: list[str],
    as_json: bool,
) -> None:
    """Builds the wheel if needed, installs it in a fresh environment and trains over it."""
    if layout and not container:
        raise click.UsageError("--layout is for --container")
    given = context.get_parameter_source("protocols") is not click.core.ParameterSource.DEFAULT
    if container and given:
        raise click.UsageError(
            "--protocols is not for --container, which trains over grpc and grpc+ar"
        )
    train.check(protocols)
    if container:
        refuse_local(context)
        _container_quickstart(base, python, layout or training.LAYOUTS[0], as_json)
        return
    # Before minutes of compiling a wheel that nothing here could run.
    interpreters.need(python or build_module.default_python())
    built = build_module.build(base, python)
    seconds = dict(built.seconds)
    with stage("install the wheel in a fresh environment", seconds):
        installed = venv.make(built.wheel)
    with stage("train over each protocol", seconds):
        runs = quickstart.run(installed, protocols)
    with stage("compare transfers", seconds):
        rows = quickstart.transfer(installed, protocols)
    if as_json:
        emit_json(
            {
                "wheel": str(built.wheel),
                "build_seconds": built.total_seconds,
                "runs": runs,
                "transfers": rows,
                "stage_seconds": seconds,
            }
        )
        return
    quickstart.render_runs(runs)
    quickstart.render_transfer(rows)
    _render_seconds(seconds)
    out.print(f"wheel: {built.wheel}", soft_wrap=True)


def _container_quickstart(base: str, python: str | None, layout: str, as_json: bool) -> None:
    found = engine.find()
    found.need_compose()
    seconds: dict[str, float] = {}
    wheel = images.build_wheel(found, base, python or images.IMAGE_PYTHON, seconds)
    made = images.build_runtime(found, wheel, seconds)
    build_seconds = round(sum(seconds.values()), 1)
    with stage("train over each protocol", seconds):
        runs = training.run(found, made[-1].name, layout)
    if as_json:
        emit_json(
            {
                "wheel": str(wheel),
                "build_seconds": build_seconds,
                "runs": runs,
                "images": [asdict(image) for image in made],
                "stage_seconds": seconds,
            }
        )
        return
    quickstart.render_runs(runs)
    _render_seconds(seconds)
    for image in made:
        out.print(f"image: {image.name} ({image.bytes / 1e6:.0f} MB)", soft_wrap=True)
    out.print(f"wheel: {wheel}", soft_wrap=True)


@main.command(name="build")
@base_option
@python_option
@local_build_options
@_container
@click.option(
    "--pin-bases", is_flag=True, help="First record the registry's digests of the base images."
)
@json_option
@click.pass_context
def build_command(
    context: click.Context,
    base: str,
    python: str | None,
    container: bool,
    pin_bases: bool,
    as_json: bool,
) -> None:
    """Builds the wheel into dist/ from the pinned sources."""
    if pin_bases and not container:
        raise click.UsageError("--pin-bases is for --container")
    if container:
        refuse_local(context)
        found = engine.find()
        if pin_bases:
            for name in bases.record(found):
                note(f"pinned {name}")
        seconds: dict[str, float] = {}
        wheel = images.build_wheel(found, base, python or images.IMAGE_PYTHON, seconds)
        built = build_module.Built(wheel, seconds)
    else:
        built = build_module.build(base, python)
    if as_json:
        emit_json(
            {
                "wheel": str(built.wheel),
                "build_seconds": built.total_seconds,
                "stage_seconds": built.seconds,
            }
        )
        return
    _render_seconds(built.seconds)
    out.print(f"wheel: {built.wheel}", soft_wrap=True)


def _render_seconds(seconds: dict[str, float]) -> None:
    table = Table(title="Wall time")
    table.add_column("stage")
    table.add_column("seconds", justify="right")
    for name, value in seconds.items():
        table.add_row(name, f"{value:.1f}")
    out.print(table)


@main.command(name="test", context_settings={"ignore_unknown_options": False})
@click.option(
    "--only",
    "suites",
    type=click.Choice(NAMES),
    multiple=True,
    help="Run this suite alone; may be repeated.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Keep results in this file; suites that it has are counted and not run again.",
)
@click.option("--full", is_flag=True, help="Leave nothing out; the result is kept in docs/.")
@click.option(
    "--part",
    type=click.Choice(PARTS),
    help=f"With --full: one part, which ends within {PART_MINUTES} minutes [default: all].",
)
@click.option(
    "--durations",
    type=click.IntRange(0),
    default=0,
    help="Show what each suite took, and that many of the slowest cases.",
)
@base_option
@python_option
@json_option
@click.argument("pytest_arguments", nargs=-1)
def test_command(
    suites: tuple[str, ...],
    resume: Path | None,
    full: bool,
    part: str | None,
    durations: int,
    base: str,
    python: str | None,
    as_json: bool,
    pytest_arguments: tuple[str, ...],
) -> None:
    """Passes the tests, cheap ones first; what follows -- goes to pytest."""
    if part and not full:
        raise click.UsageError("--part is for --full")
    if full and (resume or suites or pytest_arguments):
        raise click.UsageError("--full leaves nothing out: it takes no --resume, --only, arguments")
    if resume and pytest_arguments:
        raise click.UsageError("--resume keeps whole suites: it takes no arguments for pytest")
    needs = testing.Needs(base, python)
    if full:
        result = full_module.run_parts(needs, part or "")
    else:
        done = report.load(resume) if resume else None
        # Of the files as they are now, should they change meanwhile.
        tree = report.tree_hash() if resume else ""
        result = testing.run(suites, needs, pytest_arguments, done=done)
        if resume:
            report.save(resume, result, tree)
    for skip in result.skips:
        out.print(escape(f"skipped {skip['test']}: {skip['reason']}"), soft_wrap=True)
    for failure in result.failures:
        out.print(escape(f"failed {failure}"), soft_wrap=True)
    if durations:
        for suite, took in result.suites.items():
            wall, cpu = (f"{took.get(name, 0):8.1f} s" for name in ("wall_s", "cpu_s"))
            out.print(f"{wall}  suite {suite}, with {cpu.strip()} of processors", soft_wrap=True)
    slowest = result.slowest(durations)
    for name, seconds in slowest:
        out.print(escape(f"{seconds:8.1f} s  {name}"), soft_wrap=True)
    for line in result.lines:
        if as_json:
            note(line)
        else:
            out.print(line, soft_wrap=True)
    if as_json:
        emit_json({**result.summary(), "slowest": slowest})
    if result.failed or result.passed == 0:
        sys.exit(1)


main.add_command(bench_group)
main.add_command(vm_command)
main.add_command(mpi_command)


@main.command(name="doctor")
@click.option(
    "--peer",
    metavar="HOST:PORT",
    help="Also say how a grpc+ar server there is reached from here, and why by no better path.",
)
@json_option
def doctor_command(peer: str | None, as_json: bool) -> None:
    """Says what this machine has, what is missing, and the cure.

    With --peer it says AR-gRPC's hello to what listens there, and, where that is a server of
    grpc+ar and the wheel is installed in the cache, connects to it as another server would.
    """
    report = doctor_module.examine(peer)
    if as_json:
        emit_json(report)
    else:
        doctor_module.render(report)
    if not report["ok"]:
        sys.exit(1)


@main.group(name="patches")
def patches_group() -> None:
    """The patch series over the pinned TensorFlow and gRPC."""


@patches_group.command(name="check")
@json_option
def patches_check(as_json: bool) -> None:
    """Lints the series both ways, checks every hash, and looks for drift."""
    patches_module.lint()
    for tree in patches_module.trees():
        with stage(f"apply and export {tree} again"):
            patches_module.drift(tree)
    found = [asdict(patch) for patch in patches_module.list_patches()]
    if as_json:
        emit_json({"ok": True, "patches": found})
    else:
        out.print(f"{len(found)} patches apply with fuzz 0 and export to the same bytes")


@patches_group.command(name="list")
@json_option
def patches_list(as_json: bool) -> None:
    """Every patch: tree, class, subject; the head of its file says why it exists."""
    found = patches_module.list_patches()
    if as_json:
        emit_json({"patches": [asdict(patch) for patch in found]})
        return
    table = Table("tree", "patch", "class", "subject")
    for patch in found:
        table.add_row(patch.tree, patch.name[:4], patch.reason, patch.subject)
    out.print(table)


@patches_group.command(name="edit")
@click.argument("tree")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "revision",
    metavar="REVISION",
    help="The patches fit what build/pins.toml named at this git revision: rebase them.",
)
def patches_edit(tree: str, folder: Path, revision: str | None) -> None:
    """Makes a git repository with one commit per patch, to rework with git."""
    if revision:
        patches_module.move(tree, folder, revision)
    else:
        patches_module.edit(tree, folder)
    out.print(f"rework the commits since the tag pristine in {folder}, then:")
    out.print(f"scripts/artf patches export {tree} {folder}", soft_wrap=True)


@patches_group.command(name="export")
@click.argument("tree", required=False)
@click.argument("folder", type=click.Path(path_type=Path, exists=True), required=False)
def patches_export(tree: str | None, folder: Path | None) -> None:
    """Writes the series and all hashes anew, from the commits in FOLDER or from itself."""
    if tree and folder is None:
        raise click.UsageError("name the folder that `patches edit` made")
    for name in patches_module.export(tree, folder):
        out.print(f"changed: patches/{name}", soft_wrap=True)
    out.print("build/pins.toml has the hashes of all patches and overlays")


def _on_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def run() -> None:
    """The entry: turns an ArtfError into one line and exit status 1, Ctrl-C into 130."""
    signal.signal(signal.SIGTERM, _on_signal)
    try:
        status: Any = main.main(prog_name="artf", standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except click.exceptions.Abort:
        err.print("artf: interrupted")
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except ArtfError as error:
        err.print(escape(f"artf: {error}"), soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        err.print("artf: interrupted")
        sys.exit(130)
    except OSError as error:
        if error.errno is None or error.filename is None:
            raise
        what = f"{error.filename}: {os.strerror(error.errno)}"
        err.print(escape(f"artf: {what}; make room or mend its permissions"), soft_wrap=True)
        sys.exit(1)
