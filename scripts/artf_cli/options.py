"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, TypeVar

import click

from artf_cli import build, interpreters

_Command = TypeVar("_Command", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="End with one JSON object.")
base_option = click.option(
    "--base",
    type=click.Choice(build.BASES),
    default=build.BASES[0],
    show_default=True,
    help="The upstream wheel that ours is made from.",
)
_PYTHON_HELP = "The Python of the wheel [default: this one's, else the newest found]."
python_option = click.option("--python", type=click.Choice(build.PYTHONS), help=_PYTHON_HELP)


def _is_here(context: click.Context, parameter: click.Parameter, tag: str | None) -> str | None:
    interpreters.need(tag or build.default_python())
    return tag


#: Of commands that always run the wheel: one that cannot run here is refused before the build.
python_here_option = click.option(
    "--python", type=click.Choice(build.PYTHONS), help=_PYTHON_HELP, callback=_is_here
)


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
