"""Servers that follow a script instead of the protocol, and what raw connections need."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Address
from itertools import count

from common.frames import (
    HEADER,
    HELLO,
    MAGIC,
    OLD_VERSION,
    VERDICT,
    Answer,
    Attach,
    Frame,
    OldAnswer,
    TokenFrame,
    Verdict,
    frames,
    header,
)
from common.protocols import AR

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
SETTINGS = 4  # the type of HTTP/2's first frame
#: How a connection begins, as Scripted.openings has it.
HELLO_2, HELLO_1, HTTP_2 = "hello 2", "hello 1", "HTTP/2"


def receive(connection: socket.socket, size: int) -> bytes:
    """`size` bytes; fewer where the peer closes before."""
    got = b""
    while len(got) < size:
        piece = connection.recv(size - len(got))
        if not piece:
            break
        got += piece
    return got


def receive_frame(connection: socket.socket) -> Frame:
    """One of ours."""
    version, kind, size = header(receive(connection, HEADER))
    return Frame(version, kind, receive(connection, size))


def receive_all(connection: socket.socket, most: float) -> bytes:
    """What the peer says until it closes; TimeoutError where it says nothing for so long."""
    connection.settimeout(most)
    said = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            said += piece
    return said


def seconds_until_closed(connection: socket.socket, most: float) -> float:
    """How long until the peer closes; what it says before is skipped. Fails after `most`."""
    began = time.monotonic()
    receive_all(connection, most)
    return time.monotonic() - began


def serves_http2(connection: socket.socket) -> bool:
    """Whether the preface is answered by a SETTINGS frame on this very connection."""
    connection.sendall(PREFACE)
    said = receive(connection, 9)
    return len(said) == 9 and said[3] == SETTINGS


# --- scripts --------------------------------------------------------------------------------------

#: Gets a connection and the hello that was read from it. True: the rest of it is relayed to the
#: backend; else it is closed.
Script = Callable[[socket.socket, bytes], bool]


def says(*parts: bytes) -> Script:
    """Sends these and closes."""

    def script(connection: socket.socket, _: bytes) -> bool:
        connection.sendall(b"".join(parts))
        return False

    return script


def falls_silent(*parts: bytes) -> Script:
    """Sends these, then nothing until the client gives up; what that says is skipped."""

    def script(connection: socket.socket, _: bytes) -> bool:
        connection.sendall(b"".join(parts))
        receive_all(connection, 60)
        return False

    return script


def goes_on(*parts: bytes) -> Script:
    """Sends these and takes the connection for HTTP/2 from then on."""

    def script(connection: socket.socket, _: bytes) -> bool:
        connection.sendall(b"".join(parts))
        return True

    return script


def invites(frame: bytes | TokenFrame, attempt: int = 1) -> bytes:
    """What a server says that wants shared memory: its answer, and the attachment's frame."""
    data = frame if isinstance(frame, bytes) else frame.encode()
    return Answer("shm", attempt).encode() + Attach(data, attempt).encode()


def refused(connection: socket.socket, attempt: int = 1) -> Verdict:
    """The client's verdict on this attempt, which must be that it failed."""
    verdict = Verdict.decode(receive_frame(connection))
    assert (verdict.established, verdict.attempt) == (False, attempt), verdict
    return verdict


def attaches(frame: bytes | TokenFrame) -> Script:
    """Wants shared memory at this address, and demands that the client could not get there."""

    def script(connection: socket.socket, _: bytes) -> bool:
        connection.sendall(invites(frame))
        why = refused(connection).reason
        connection.sendall(Answer(attempt=2, reason=f"shm: {why}").encode())
        return True

    return script


def attaches_old(address: str) -> Script:
    """The same in version 1."""

    def script(connection: socket.socket, _: bytes) -> bool:
        connection.sendall(OldAnswer("shm", address).encode())
        said = receive_frame(connection)
        assert not Verdict.decode(said.of(VERDICT, OLD_VERSION)).established
        return True

    return script


#: What a server of version 1 says to a hello of version 2; what follows it takes for HTTP/2.
KNOWS_VERSION_1 = goes_on(OldAnswer(reason="the peer speaks version 2, this end speaks 1").encode())


#: Numbers the servers of this process.
_NUMBERS = count(1)


class Scripted(threading.Thread):
    """A server that treats its first connections by one script each, and relays all others.

    The scripts' connections must begin with a hello. No two servers of a process have the same
    address: gRPC's clients remember by address what does not speak AR-gRPC, and the kernel gives
    out the port of a closed server again.
    """

    def __init__(self, *scripts: Script, backend: str | None) -> None:
        super().__init__(daemon=True)
        self._scripts = list(scripts)
        self._backend = backend
        host = str(IPv4Address("127.1.0.0") + next(_NUMBERS))
        self._listening = socket.create_server((host, 0))
        self._open: list[socket.socket] = [self._listening]
        #: How each connection began: HELLO_2, HELLO_1, HTTP_2, or its first bytes.
        self.openings: list[str] = []
        #: Whatever a script demanded in vain.
        self.failures: list[BaseException] = []
        self.start()

    @property
    def address(self) -> str:
        host, port = self._listening.getsockname()
        return f"{host}:{port}"

    @property
    def target(self) -> str:
        return f"{AR}://{self.address}"

    def run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._open.append(connection)
                script = self._scripts.pop(0) if self._scripts else None
                run = threading.Thread(target=self._serve, args=(connection, script), daemon=True)
                run.start()

    def _serve(self, connection: socket.socket, script: Script | None) -> None:
        try:
            connection.settimeout(60)
            began = self._opening(connection)
            if script is not None:
                assert began.startswith(MAGIC), began
                relay, began = script(connection, began), b""
            else:
                relay = True
            if relay and self._backend is not None:
                connection.settimeout(None)
                self._relay(connection, began)
        except OSError:
            pass
        except BaseException as failure:
            self.failures.append(failure)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()

    def _opening(self, connection: socket.socket) -> bytes:
        """The first bytes: a whole frame, if it is one of ours."""
        began = receive(connection, len(MAGIC))
        name = HTTP_2 if began == PREFACE[: len(began)] else repr(began)
        if began == MAGIC:
            began += receive(connection, HEADER - len(MAGIC))
            version, kind, size = header(began)
            name = f"hello {version}" if kind == HELLO else f"kind {kind}"
            began += receive(connection, size)
        if began:  # else it only looked whether anybody listens
            self.openings.append(name)
        return began

    def _relay(self, connection: socket.socket, began: bytes) -> None:
        assert self._backend is not None
        backend = connected(self._backend)
        self._open.append(backend)
        backend.sendall(began)
        threading.Thread(target=pump, args=(backend, connection), daemon=True).start()
        pump(connection, backend)

    def close(self) -> None:
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        assert not self.failures, self.failures


def connected(address: str) -> socket.socket:
    host, port = address.split(":")
    return socket.create_connection((host, int(port)))


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Passes on what comes, until one of the two ends; then both do."""
    with suppress(OSError):
        while piece := source.recv(65536):
            sink.sendall(piece)
    _end(source, sink)


def _end(*connections: socket.socket) -> None:
    for each in connections:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


#: Where a frame comes from.
CLIENT, SERVER = "client", "server"


def watched(backend: str, look: Callable[[str, Frame], bool]) -> Script:
    """Passes the handshake on frame by frame, and then the rest.

    `look` sees each frame before, with its sender; False: it is not passed on.
    """

    def pass_on(sender: str, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while (began := receive(source, len(MAGIC))) == MAGIC:
                began += receive(source, HEADER - len(MAGIC))
                version, kind, size = header(began)
                body = receive(source, size)
                if look(sender, Frame(version, kind, body)):
                    sink.sendall(began + body)
            sink.sendall(began)
        pump(source, sink)

    def script(connection: socket.socket, hello: bytes) -> bool:
        connection.settimeout(None)
        server = connected(backend)
        for frame in frames(hello):
            if look(CLIENT, frame):
                server.sendall(frame.encode())
        back = threading.Thread(target=pass_on, args=(SERVER, server, connection), daemon=True)
        back.start()
        pass_on(CLIENT, connection, server)
        back.join()
        server.close()
        return False

    return script
