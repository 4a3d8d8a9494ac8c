"""`bench serve` and what `bench recv --peer` records of two hosts."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from artf_cli import build, venv
from artf_cli.bench import record
from artf_cli.cluster import Cluster
from artf_cli.console import note, out
from artf_cli.errors import ArtfError
from artf_cli.options import base_option, python_here_option
from artf_cli.peer import agent, channel, host
from artf_cli.peer.client import Peer
from artf_cli.supervise import log_folder

wheel_option = click.option(
    "--wheel",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Measure this wheel, as it is, instead of building one.",
)


class PeerRecord(record.Record):
    """Where figures of two hosts come from, each by `here` and `peer`.

    `received` is what the RDMA ports of each host took in meanwhile, by the drivers' own counters;
    `counted` what the tasks say came over a fabric or a classic channel, by protocol and task;
    `said` the lines of their logs that name devices and paths.
    """

    hosts: dict[str, host.HostFacts]
    received: dict[str, dict[str, dict[str, int]]]
    counted: dict[str, dict[str, int]]
    said: dict[str, dict[str, list[str]]]


def find_wheel(wheel: Path | None, base: str, python: str | None) -> Path:
    """The wheel to measure: the one that is named, or else the built one."""
    return wheel or build.build(base, python).wheel


def token() -> str:
    """The token of the environment; ArtfError where there is none."""
    found = os.environ.get(channel.TOKEN_VARIABLE)
    if found is None:
        raise ArtfError(
            f"{channel.TOKEN_VARIABLE} is not set",
            "set it to what `scripts/artf bench serve` printed on the other host",
        )
    return channel.check_token(found)


class Watch:
    """Looks at both hosts before and after a measurement."""

    def __init__(self, peer: Peer, made: record.Record) -> None:
        """`made` is the record of this host; ArtfError when the other one runs something else."""
        self._peer = peer
        self._made = made
        wheel = made["wheel"]
        assert wheel is not None, "tasks run a wheel"
        own, peers = host.facts(wheel), peer.facts()
        host.check_same(own, peers, peer.address)
        #: Both hosts' facts.
        self.hosts = {"here": own, "peer": peers}
        self._before = self._received()
        self._counted: dict[str, dict[str, int]] = {}
        self._said: dict[str, dict[str, list[str]]] = {}

    def _received(self) -> dict[str, dict[str, dict[str, int]]]:
        return {"here": host.received(), "peer": self._peer.received()}

    def look(self, clusters: Mapping[str, Cluster]) -> None:
        """Asks the tasks, before they end."""
        for label, cluster in clusters.items():
            report = cluster.report()
            self._counted[label] = {
                task: said["fabric_bytes_received"] + sum(said["classic_bytes_received"].values())
                for task, said in report.items()
            }
            self._said[label] = {task: cluster.said(task) for task in cluster.tasks}

    def record(self) -> PeerRecord:
        """The record of the measurement, which is over."""
        after = self._received()
        return PeerRecord(
            **self._made,
            hosts=self.hosts,
            received={where: host.grown(self._before[where], after[where]) for where in self.hosts},
            counted=self._counted,
            said=self._said,
        )


def render(made: Mapping[str, Any]) -> None:
    """Prints the two hosts: what they are, and what their RDMA ports took in."""
    for where, facts in made["hosts"].items():
        cores = facts["cores"]["usable"]
        line = f"{where}: {facts['cpu']}, {cores} cores, Linux {facts['kernel']}"
        for port in facts["rdma"]:
            line += f"; {port['name']} {port['state'].lower()} ({port['link_layer']}"
            line += f", MTU {port['active_mtu'] or 'unknown'})"
            took = made["received"][where].get(port["name"], {})
            line += "".join(f", {name.replace('_', ' ')} {took[name]}" for name in sorted(took))
        out.print(line if facts["rdma"] else f"{line}; no RDMA device", soft_wrap=True)


def hint(rows: Sequence[Mapping[str, Any]]) -> None:
    """Says so where no tensor of the measurement went over verbs."""
    if any(row["fabric"] == "verbs" for row in rows):
        return
    paths = sorted({row["fabric"] for row in rows})
    note(
        f"nothing went over verbs, but over {', '.join(paths)}: the record's `said` has what the "
        f"tasks said of it; see also `scripts/artf doctor` on both hosts"
    )


def _listen(address: str) -> socket.socket:
    where, port = channel.parse_address(address)
    try:
        return socket.create_server((where, port))
    except OSError as error:
        raise ArtfError(
            f"cannot listen at {address}: {error.strerror or error}",
            "name an address of this host, and a port that is free",
        ) from None


@click.command(name="serve")
@click.option(
    "--listen",
    metavar="ADDRESS:PORT",
    required=True,
    help="Where to listen, and nowhere else: an address of this host that the other one reaches.",
)
@wheel_option
@base_option
@python_here_option
def serve_command(listen: str, wheel: Path | None, base: str, python: str | None) -> None:
    """Serves `bench recv --peer` on another host, until it is interrupted.

    Prints the command for the other host, with a random token that guards this one: who has it may
    start the tasks of a measurement here. Both hosts need the same commit and the same wheel. The
    tasks listen at ports of their own, which a firewall must let through, and TensorFlow's servers
    ask nobody who he is while they run: use a network that you trust.
    """
    channel.parse_address(listen)
    secret = os.environ.get(channel.TOKEN_VARIABLE)
    secret = channel.new_token() if secret is None else channel.check_token(secret)
    found = find_wheel(wheel, base, python)
    made = record.wheel_record(found)
    installed = venv.make(found)
    with log_folder("serve") as logs, _listen(listen) as listener:
        where = "{}:{}".format(*listener.getsockname()[:2])
        out.print(f"{found.name} is served at {where}; on the other host run", soft_wrap=True)
        command = f"{channel.TOKEN_VARIABLE}={secret} scripts/artf bench recv --peer {where}"
        out.print(f"    {command}", soft_wrap=True)
        out.file.flush()
        agent.Agent(listener, secret, installed, partial(host.facts, made), logs).run()
