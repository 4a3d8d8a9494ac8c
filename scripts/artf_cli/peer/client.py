"""The host that measures: asks `artf bench serve` on another one for facts and for tasks."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

from artf_cli.errors import ArtfError
from artf_cli.peer import channel as channels
from artf_cli.peer.channel import Channel, Closed, Message
from artf_cli.peer.host import HostFacts
from artf_cli.supervise import Child, Group

_RELAY = Path(__file__).parents[1] / "runtime/relay.py"


class Peer:
    """Another host that serves; `host` is its address, and `own_host` the one it knows us by."""

    def __init__(self, address: str, token: str) -> None:
        """Connects; ArtfError says what is there instead."""
        host, self._port = channels.parse_address(address)
        self.address = address
        self._token = token
        try:
            # Servers are told apart by number, and by one of four parts.
            self.host = str(socket.getaddrinfo(host, None, socket.AF_INET)[0][4][0])
        except OSError as error:
            raise ArtfError(
                f"{host} has no IPv4 address: {error.strerror}", "give its address by number"
            ) from None
        self._control = channels.connect(self.host, self._port, token)
        self.own_host = str(self._control.socket.getsockname()[0])

    def close(self) -> None:
        """Ends the connection; tasks have their own."""
        self._control.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, what: str) -> Any:
        try:
            self._control.send({"do": what})
            return self._control.receive()[what]
        except (Closed, KeyError) as error:
            raise ArtfError(
                f"{self.address} gives no {what}: {error}", "see what `artf bench serve` says there"
            ) from None

    def facts(self) -> HostFacts:
        """What the host is and has."""
        found: HostFacts = self._ask("facts")
        return found

    def received(self) -> dict[str, dict[str, int]]:
        """`host.received` there."""
        found: dict[str, dict[str, int]] = self._ask("received")
        return found

    def start(self, group: Group, name: str, script: str, variant: str) -> Child:
        """Starts a task there; the child is a process here that hands lines on."""
        channel: Channel = channels.connect(self.host, self._port, self._token)
        try:
            request: Message = {"do": "start", "script": script, "variant": variant}
            try:
                channel.send({**request, "host": self.host})
            except Closed as error:
                raise ArtfError(f"{self.address} starts no task: {error}", "try again") from None
            number = channel.socket.fileno()
            # -S: it needs nothing but Python, and a dozen of them start at once.
            command: list[str | Path] = [sys.executable, "-I", "-S", _RELAY, str(number)]
            return group.start(name, command, talk=True, pass_fds=[number])
        finally:
            # The relay has its own descriptor of the connection, which goes on.
            channel.release()
