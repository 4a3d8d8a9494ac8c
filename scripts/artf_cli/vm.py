"""`artf vm`: runs a command in a virtual host that has an RDMA device; its code is the tests'."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from artf_cli.paths import REPO

_TESTS = str(REPO / "tests")


def _words(_context: click.Context, _option: click.Parameter, value: str | None) -> list[str]:
    try:
        return shlex.split(value or "")
    except ValueError as error:
        raise click.BadParameter(f"{value}: {error}") from None


@click.command(name="vm")
@click.option(
    "--driver",
    type=click.Choice(("rxe", "siw")),
    default="rxe",
    show_default=True,
    help="Soft-RoCE or soft-iWARP.",
)
@click.option(
    "--peer",
    metavar="COMMAND",
    callback=_words,
    help="Run this in a second host, linked to the first.",
)
@click.option(
    "--delay", type=click.FloatRange(0, 10000), default=0.0, help="Of the link, in ms each way."
)
@click.option("--loss", type=click.FloatRange(0, 100), default=0.0, help="Of packets, in percent.")
@click.option(
    "--memory",
    type=click.IntRange(256, 65536),
    default=2048,
    show_default=True,
    help="Of each host, in MiB.",
)
@click.option(
    "--share",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FOLDER",
    help="What is written in it stays; may be given more than once.",
)
@click.option(
    "--timeout", type=click.FloatRange(1), default=600.0, show_default=True, help="Seconds."
)
@click.argument("command", nargs=-1, required=True)
def vm_command(
    driver: str,
    peer: list[str],
    delay: float,
    loss: float,
    memory: int,
    share: tuple[Path, ...],
    timeout: float,
    command: tuple[str, ...],
) -> None:
    """Runs COMMAND in a virtual host with an RDMA device, as root and in this folder.

    The host sees this machine's files; what it writes goes when it ends, but in the folders of
    --share. Two hosts have the addresses 10.77.0.1 and 10.77.0.2. Ends as the command ends, or as
    the second one when only that failed.
    """
    # Not where tests/ is left out, as in an image that builds the wheel.
    if _TESTS not in sys.path:
        sys.path.append(_TESTS)
    from rdma_host import machine

    guests = [machine.Guest(command, shared=share)]
    if peer:
        guests.append(machine.Guest(peer, shared=share))
    link = machine.Link(driver, delay, loss)
    outcomes = machine.run(guests, link, memory, timeout, show=_show)
    sys.exit(next((each.status for each in outcomes if each.status), 0))


def _show(host: int, name: str, text: str) -> None:
    stream = sys.stdout if name == "stdout" else sys.stderr
    stream.write(text if host == 0 else "".join(f"peer: {line}\n" for line in text.splitlines()))
    stream.flush()
