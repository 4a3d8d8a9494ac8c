"""What answers AR-gRPC's hello, by real sockets; servers with the wheel are tests/wheel's."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from artf_cli import doctor, reach
from artf_cli.errors import ArtfError
from artf_cli.peer import hello
from artf_cli.peer.hello import Found

pytestmark = pytest.mark.timeout(30)

NODE = bytes(range(16))
#: What gRPC's server begins with: SETTINGS with two entries.
SETTINGS = b"\0\0\x0c\4\0\0\0\0\0" + bytes(12)
GOAWAY = b"\0\0\x08\7\0\0\0\0\0" + bytes(8)


def frame(kind: int, body: bytes, version: int = 2) -> bytes:
    return b"AR-gRPC\n" + struct.pack("<HHI", version, kind, len(body)) + body


def field(number: int, data: bytes) -> bytes:
    return struct.pack("<HI", number, len(data)) + data


ANSWER_FIELDS = (
    field(1, NODE),
    field(2, bytes(8)),
    field(3, struct.pack("<I", 1)),
    # Of a newer server.
    field(99, b"new"),
    field(6, b"the client offers no fabric"),
)
ANSWER = frame(2, b"".join(ANSWER_FIELDS))
SPEAKS = Found(hello.AR, "the client offers no fabric")


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that does this to its one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                answer(connection)

        thread = threading.Thread(target=run)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def saying(heard: bytes, pause: float = 0.0, size: int = 8192) -> Callable[[socket.socket], None]:
    """Answers a whole hello with these bytes in pieces, then waits for the other end's close."""

    def answer(connection: socket.socket) -> None:
        assert connection.recv(8192).startswith(b"AR-gRPC\n\2\0\1\0")
        for at in range(0, len(heard), size):
            connection.sendall(heard[at : at + size])
            time.sleep(pause)
        while connection.recv(8192):
            pass

    return answer


def asked(address: str, wait_s: float = 5.0) -> Found:
    host, _, port = address.rpartition(":")
    return hello.ask(host, int(port), wait_s)


def test_the_hello_is_what_the_header_says() -> None:
    assert hello.encode_hello(NODE) == frame(1, field(1, NODE))


@pytest.mark.parametrize(
    ("heard", "found"),
    [
        (ANSWER, SPEAKS),
        (ANSWER + SETTINGS, SPEAKS),
        (frame(2, field(1, NODE)), Found(hello.AR, "")),
        (
            frame(2, b"", version=3),
            Found(hello.AR, "it speaks version 3 of the handshake, this artf 2"),
        ),
        (SETTINGS, Found(hello.GRPC, "it speaks HTTP/2 and no AR-gRPC")),
        (GOAWAY, Found(hello.GRPC, "it speaks HTTP/2 and no AR-gRPC")),
        (b"\x15\3\3\0\2\2\x46", Found(hello.TLS, "it speaks TLS and no AR-gRPC before it")),
        (b"SSH-2.0-x\r\n", Found(hello.OTHER, "it begins with 'SSH-2.0-x\\r\\n'")),
        (b"AR-gRPC!", Found(hello.OTHER, "it begins with 'AR-gRPC!'")),
        (b"\x15\x16\xff", Found(hello.OTHER, "it begins with '\\x15\\x16\\\\xff'")),
        (
            b"AR-gRPC\n" + struct.pack("<HHI", 2, 2, 1 << 20),
            Found(hello.OTHER, "it answers with an AR-gRPC frame that is too long"),
        ),
        (
            frame(1, field(1, NODE)),
            Found(hello.OTHER, "it answers with an AR-gRPC frame that is no answer"),
        ),
        (
            frame(2, field(1, b"short")),
            Found(hello.OTHER, "it answers with an AR-gRPC frame that is no answer"),
        ),
        (
            frame(2, field(1, NODE) + struct.pack("<HI", 6, 1 << 31)),
            Found(hello.OTHER, "it answers with an AR-gRPC frame that is no answer"),
        ),
        (
            frame(2, field(1, NODE) + field(4, b"shm")),
            Found(hello.OTHER, "it chooses a fabric that was not offered"),
        ),
    ],
)
def test_answers(heard: bytes, found: Found) -> None:
    with server(saying(heard)) as address:
        assert asked(address) == found
    # However it comes in pieces, nothing is concluded too early.
    for size in range(len(heard)):
        early = hello.classify(heard[:size])
        assert early is None or early.kind == found.kind, heard[:size]


def test_an_answer_in_pieces() -> None:
    with server(saying(ANSWER, pause=0.001, size=1)) as address:
        assert asked(address) == SPEAKS


@pytest.mark.parametrize(
    ("heard", "wait_s", "detail"),
    [
        (b"", 0.2, "it says nothing in 0.2 s"),
        (b"AR-g", 2.5, "it says nothing more in 2.5 s, after 4 bytes"),
        (b"\0\0", 2.5, "it says nothing more in 2.5 s, after 2 bytes"),
    ],
)
def test_silence(heard: bytes, wait_s: float, detail: str) -> None:
    with server(saying(heard)) as address:
        assert asked(address, wait_s) == Found(hello.SILENT, detail)


def test_one_that_drips_is_not_listened_to_for_ever() -> None:
    begin = time.monotonic()

    def drip(connection: socket.socket) -> None:
        for _ in range(100):
            try:
                connection.sendall(b"\0" if connection.recv(1, socket.MSG_PEEK) else b"")
                time.sleep(0.05)
            except OSError:
                return

    with server(drip) as address:
        assert asked(address, 0.3).kind in (hello.SILENT, hello.OTHER)
        assert time.monotonic() - begin < 2


def test_one_that_closes() -> None:
    def close(connection: socket.socket) -> None:
        connection.recv(8192)

    with server(close) as address:
        assert asked(address) == Found(hello.CLOSED, "it closes the connection")


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_closed_port() -> None:
    address = closed_port()
    found = reach.look(address)
    assert (found["kind"], found["detail"]) == (hello.UNREACHABLE, "Connection refused")
    assert (found["path"], found["untold"]) == (None, "no server of grpc+ar answers")
    assert reach.reach_check(found) == {
        "name": f"peer {address}",
        "status": "warn",
        "detail": "unreachable: Connection refused",
        "cure": "nothing listens there, or a firewall is between",
    }


def test_a_name_that_nobody_has() -> None:
    found = reach.look("no-such-host.invalid:1")
    assert (found["kind"], found["path"]) == (hello.UNREACHABLE, None)
    assert found["address"] == "no-such-host.invalid:1"


def test_a_stock_server_is_reached_over_tcp() -> None:
    with server(saying(SETTINGS)) as address:
        found = reach.look(address)
    assert (found["kind"], found["path"], found["untold"]) == (hello.GRPC, "tcp", "")
    assert [(each["fabric"], each["reached"]) for each in found["fabrics"]] == [
        ("shm", False),
        ("verbs", False),
        ("tcp", True),
    ]
    assert "protocol='grpc+ar'" in reach.reach_check(found)["cure"]


def test_without_a_wheel_it_says_what_cannot_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "DIST", tmp_path)
    monkeypatch.setenv("ARTF_CACHE", str(tmp_path / "cache"))
    with server(saying(ANSWER)) as address:
        found = reach.look(address)
    assert (found["kind"], found["path"], found["fabrics"]) == (hello.AR, None, [])
    assert found["untold"].startswith("only the wheel can tell by what it is reached, and there is")
    (tmp_path / "x.whl").write_bytes(b"")
    with server(saying(ANSWER)) as address:
        found = reach.look(address)
    assert (found["wheel"], found["path"]) == ("x.whl", None)
    assert found["untold"].endswith(
        "the wheel is not installed: scripts/artf quickstart installs it"
    )
    assert found["untold"] in reach.reach_check(found)["detail"]


def test_the_doctors_object_has_it_only_when_asked() -> None:
    address = closed_port()
    said = doctor.examine(address)
    assert said["peer"]["address"] == address
    assert said["checks"][-1]["name"] == f"peer {address}"
    with pytest.raises(ArtfError, match="'nowhere' is no address"):
        doctor.examine("nowhere")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "AR_GRPC_FABRICS=shm allows no tcp, and nothing else reaches ipv4:1.2.3.4:5: shm: far",
            "far",
        ),
        ("AR_GRPC_FABRICS=shm allows no tcp, and nothing else reaches ipv4:1.2.3.4:5: so", "so"),
    ],
)
def test_why_a_fabric_does_not_reach_it(
    line: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "_connect", lambda *_: (None, ["x", line]))
    assert reach._of_fabric(Path("python"), "1.2.3.4:5", "shm") == {
        "fabric": "shm",
        "reached": False,
        "why": why,
    }
