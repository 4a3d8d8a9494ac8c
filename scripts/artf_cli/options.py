"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Callable, TypeVar

import click

from artf_cli import bazel, build, interpreters

_Command = TypeVar("_Command", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="End with one JSON object.")
base_option = click.option(
    "--base",
    type=click.Choice(build.BASES),
    default=build.BASES[0],
    show_default=True,
    help="The upstream wheel that ours is made from.",
)
_PYTHON_HELP = "The Python of the wheel [default: this one's, else the newest here, else cp311]."
python_option = click.option("--python", type=click.Choice(build.PYTHONS), help=_PYTHON_HELP)


def _is_here(context: click.Context, parameter: click.Parameter, tag: str | None) -> str | None:
    if not context.resilient_parsing:
        interpreters.need(tag or build.default_python())
    return tag


#: Of commands that always run the wheel: one that cannot run here is refused before the build.
python_here_option = click.option(
    "--python", type=click.Choice(build.PYTHONS), help=_PYTHON_HELP, callback=_is_here
)


def _variable(name: str) -> Callable[[click.Context, click.Parameter, object], None]:
    """Makes an option stand for a variable, which tests and benchmarks, building too, also read."""

    def store(context: click.Context, parameter: click.Parameter, value: object) -> None:
        if value is not None:
            os.environ[name] = str(value)

    return store


def local_build_options(command: _Command) -> _Command:
    """How Bazel runs on this machine."""
    jobs = click.option(
        "--jobs",
        type=click.IntRange(min=1),
        expose_value=False,
        callback=_variable(bazel.JOBS),
        help=f"Compilers at a time [default: one per core; {bazel.JOBS}].",
    )
    own = click.option(
        "--bazelrc",
        type=click.Path(exists=True, dir_okay=False),
        expose_value=False,
        callback=_variable(bazel.BAZELRC),
        help=f"A file that Bazel reads after the project's [{bazel.BAZELRC}].",
    )
    return jobs(own(command))


def refuse_local(context: click.Context) -> None:
    """A UsageError where `local_build_options` are given, which a container's build has not."""
    for name in ("jobs", "bazelrc"):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} is not for --container")


def split_words(context: click.Context, option: click.Parameter, value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def list_option(
    name: str, default: Sequence[object], **settings: Any
) -> Callable[[_Command], _Command]:
    """An option that takes words with commas between."""
    return click.option(
        name,
        default=",".join(map(str, default)),
        show_default=True,
        **{"callback": split_words, **settings},
    )
