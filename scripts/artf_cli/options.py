"""Options that several commands share."""

from __future__ import annotations

import click

from artf_cli import build

json_option = click.option("--json", "as_json", is_flag=True, help="End with one JSON object.")
base_option = click.option(
    "--base",
    type=click.Choice(build.BASES),
    default=build.BASES[0],
    show_default=True,
    help="The upstream wheel that ours is made from.",
)
python_option = click.option(
    "--python",
    type=click.Choice(build.PYTHONS),
    help="The Python of the wheel [default: this one's, else the newest found].",
)
