"""Lines of JSON between two artf over TCP, after each has shown that it knows the same token.

The serving end says {"artf": …, "version": …, "nonce": …}, the other one {"nonce": …, "proof": …},
and the serving end {"proof": …} or {"refused": why}. A proof is an HMAC over both nonces, so the
token itself never travels, and what somebody overheard is of no use later. What follows is not
encrypted: it is for a network that is trusted with the measurement itself.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import threading
from contextlib import suppress
from typing import Any

from artf_cli.errors import ArtfError

#: The variable that has the token on both hosts.
TOKEN_VARIABLE = "ARTF_PEER_TOKEN"
#: Of what the two ends say to each other; others are refused.
VERSION = 1
_GREETING = "bench serve"
_LEAST_TOKEN = 16
_LONGEST_LINE = 1 << 20
# Before the other end is known it gets neither memory nor time.
_LONGEST_GREETING = 512
_GREETING_S = 10.0
# A host that dies without a word is missed after half a minute.
_IDLE_S, _BETWEEN_S, _PROBES = 10, 5, 4

Message = dict[str, Any]


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_hex(16)


def check_token(token: str) -> str:
    """The token, which must be long enough; else ArtfError."""
    if len(token) < _LEAST_TOKEN:
        raise ArtfError(
            f"{TOKEN_VARIABLE} has {len(token)} characters, and it guards what starts processes",
            f"set it to what `artf bench serve` printed, or to {_LEAST_TOKEN} random ones",
        )
    return token


def parse_address(text: str) -> tuple[str, int]:
    """The (host, port) of `HOST:PORT`; ArtfError says what is accepted."""
    host, _, port = text.rpartition(":")
    if not host or ":" in host or not port.isdigit() or int(port) > 65535:
        raise ArtfError(f"{text!r} is no address", "give HOST:PORT, such as 10.0.0.2:7000")
    return host, int(port)


class Closed(Exception):
    """The other end has closed the connection, or broke off."""


class Channel:
    """One end of a connection. Any thread may `send`, one at a time `receive`."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _BETWEEN_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
        self.socket = connection
        self._sending = threading.Lock()
        self._lines = connection.makefile("rb")

    def send(self, message: Message) -> None:
        """Writes a message; raises Closed where nobody will read it."""
        try:
            with self._sending:
                self.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise Closed(str(error)) from None

    def receive(self, longest: int = _LONGEST_LINE) -> Message:
        """The next message; raises Closed at the end, and for what is no message."""
        try:
            line = self._lines.readline(longest)
            found = json.loads(line) if line.endswith(b"\n") else None
        except (OSError, ValueError) as error:
            raise Closed(str(error)) from None
        if not isinstance(found, dict):
            raise Closed("it said something else" if line else "it closed the connection")
        return found

    def release(self) -> None:
        """Lets go of this process's descriptor; another one's keeps the connection."""
        self._lines.close()
        self.socket.close()

    def close(self) -> None:
        """Ends it for both; a `receive` in another thread raises Closed."""
        _shut(self.socket)
        self.release()


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):  # it has ended already
        connection.shutdown(socket.SHUT_RDWR)


def _proof(token: str, end: str, server: str, client: str) -> str:
    words = "\n".join(("artf", end, server, client))
    return hmac.new(token.encode(), words.encode(), hashlib.sha256).hexdigest()


def _same(one: str, other: object) -> bool:
    return isinstance(other, str) and hmac.compare_digest(one.encode(), other.encode())


def welcome(connection: socket.socket, token: str) -> Channel:
    """The serving end of a fresh connection; raises Closed unless the other one has the token."""
    connection.settimeout(_GREETING_S)
    # Each byte may take so long; all of them together may not.
    limit = threading.Timer(2 * _GREETING_S, _shut, (connection,))
    limit.daemon = True
    limit.start()
    try:
        channel = Channel(connection)
        nonce = secrets.token_hex(16)
        channel.send({"artf": _GREETING, "version": VERSION, "nonce": nonce})
        said = channel.receive(_LONGEST_GREETING)
        theirs = str(said.get("nonce", ""))
        if not _same(_proof(token, "client", nonce, theirs), said.get("proof")):
            channel.send({"refused": "the token is another one"})
            raise Closed("it does not know the token")
        channel.send({"proof": _proof(token, "server", nonce, theirs)})
    finally:
        limit.cancel()
    connection.settimeout(None)
    return channel


def connect(host: str, port: int, token: str) -> Channel:
    """The other end; raises ArtfError that says what is there instead."""
    where = f"{host}:{port}"
    cure = f"start `scripts/artf bench serve --listen {where}` there, and let the port through"
    try:
        connection = socket.create_connection((host, port), timeout=_GREETING_S)
    except OSError as error:
        raise ArtfError(f"no connection to {where}: {error.strerror or error}", cure) from None
    channel = Channel(connection)
    try:
        _introduce(channel, where, token)
    except Closed as error:
        channel.close()
        raise ArtfError(f"no `artf bench serve` answers at {where}: {error}", cure) from None
    except BaseException:
        channel.close()
        raise
    connection.settimeout(None)
    return channel


def _introduce(channel: Channel, where: str, token: str) -> None:
    said = channel.receive(_LONGEST_GREETING)
    if said.get("artf") != _GREETING:
        raise Closed("it speaks something else")
    if said.get("version") != VERSION:
        raise ArtfError(
            f"{where} speaks version {said.get('version')} and this artf version {VERSION}",
            "check the same commit out on both hosts",
        )
    theirs, own = str(said.get("nonce", "")), secrets.token_hex(16)
    channel.send({"nonce": own, "proof": _proof(token, "client", theirs, own)})
    answer = channel.receive(_LONGEST_GREETING)
    if not _same(_proof(token, "server", theirs, own), answer.get("proof")):
        raise ArtfError(
            f"{where} refuses: {answer.get('refused', 'it does not know the token')}",
            f"set {TOKEN_VARIABLE} to what `artf bench serve` printed there",
        )
