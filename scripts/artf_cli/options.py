"""Options that several commands share."""

from __future__ import annotations

import click

from artf_cli import build, interpreters

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
    if tag:
        interpreters.need(tag)
    return tag


#: Of commands that always run the wheel: one that cannot run here is refused before the build.
python_here_option = click.option(
    "--python", type=click.Choice(build.PYTHONS), help=_PYTHON_HELP, callback=_is_here
)
