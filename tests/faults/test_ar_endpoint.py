"""The AR endpoint against peers that are stock, hostile, silent, killed, stopped or out of luck.

Whatever a peer does, an error or plain TCP comes of it in time, and the next step works.
"""

from __future__ import annotations

import itertools
import os
import re
import resource
import signal
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from common.ar import (
    Moved,
    descriptors,
    eventually,
    moved,
    offers,
    path_of,
    settle,
    wait_no_offers,
)
from common.fixtures import ClusterFactory
from common.processes import Cluster, free_port, run_program
from common.protocols import AR, STOCK
from common.sessions import config, lost, task_device

pytestmark = pytest.mark.timeout(120)

PS, WORKER = "ps:0", "worker:0"
MIB = 2**20
PROGRAMS = Path(__file__).with_name("programs")
#: What ar_client.py's step gives.
SUM = sum(range(100000))
#: Completion queues of a server: each keeps the descriptor that it was first polled with.
QUEUES = 11
LATE = 1.5  # seconds that an outcome may take beyond the limit that it waits for
RECONNECT = 1.2  # seconds that gRPC waits at most before it connects again for the first time
HANDSHAKE = 5.0  # seconds that either end waits for the other in a handshake
SEEN = 1.0  # seconds within which the death of a peer must have ended the steps that need it


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One server of the wheel's own, unpatched gRPC."""
    with Cluster(STOCK, {"ps": 1}, tmp_path_factory.mktemp("stock")) as cluster:
        yield cluster


@pytest.fixture
def fabric() -> str:
    return "shm"


@contextmanager
def session_at(target: str, seconds: float = 30) -> Iterator[Any]:
    """A session, and for the test a graph to build in."""
    with tf.Graph().as_default():
        session = tf.compat.v1.Session(target, config=config(seconds))
        try:
            yield session
        finally:
            with suppress(tf.errors.OpError):  # the master itself may be the one that was killed
                session.close()


def summed(target: str, seconds: float = 30) -> int:
    """A step of a new session that returns SUM."""
    with session_at(target, seconds) as session:
        fed = tf.compat.v1.placeholder(tf.int64, [])
        return int(session.run(tf.reduce_sum(tf.range(fed)), {fed: 100000}))


def large_step(way: tuple[str, str], mib: int, parts: int = 1) -> Any:
    """`parts` tensors of `mib` MiB go over `way`; 0.0 if each is one value throughout."""
    spreads = []
    for part in range(parts):
        with tf.device(task_device(way[0])):
            value = tf.random.uniform([], dtype=tf.float64, seed=part)
            sent = tf.fill([mib * MIB // 8], value)
        with tf.device(task_device(way[1])):
            spreads.append(tf.reduce_max(sent) - tf.reduce_min(sent))
    with tf.device(task_device(way[1])):
        return tf.add_n(spreads)


def assert_works(cluster: Cluster, fabric: str | None) -> None:
    """A new session brings tensors both ways, over `fabric`; None: over a stock connection."""
    for way in ((PS, WORKER), (WORKER, PS)):
        with session_at(cluster.target(way[1])) as session:
            step = large_step(way, 2)
            received = Moved(cluster, way[1])
            assert session.run(step) == 0.0
            assert received() == (moved(1, 2 * MIB) if fabric == "shm" else moved())
        if fabric:
            assert path_of(cluster, way[1], way[0]) == fabric
    wait_no_offers(cluster, PS, WORKER)


# --- stock peers, and what AR_GRPC_FABRICS forces -------------------------------------------------


def test_stock_client(pair: Cluster) -> None:
    """`grpc://` reaches a server of grpc+ar, which takes it for what it is."""
    assert_works(pair, "shm")
    links = pair[PS].status()["links"]
    with session_at(pair.target(PS)) as session:
        value = session.run(tf.fill([MIB], 3.0))
        assert (value == 3.0).all() and value.size == MIB
        assert pair[PS].status()["links"] == links


def test_client_of_a_stock_server(stock: Cluster) -> None:
    """The first connection learns it by a hello, the second within a minute says none."""
    settings = {"targets": [stock.target(PS, AR)] * 3, "seconds": 20}
    outcome = run_program(PROGRAMS / "ar_client.py", settings)
    result = outcome.result()
    assert [each.get("value") for each in result["attempts"]] == [SUM] * 3
    whys = re.findall(r"connected to ipv4:\S+ over tcp: (.*)", outcome.stderr)
    plain = "it does not speak AR-gRPC"
    assert whys == [plain, "it is known not to speak AR-gRPC", "it is known not to speak AR-gRPC"]
    assert (result["status"]["links"], result["status"]["stream_bytes_sent"]) == (0, 0)


@pytest.mark.parametrize("stock_task", [PS, WORKER])
def test_stock_task_in_a_cluster(new_ar_cluster: ClusterFactory, stock_task: str) -> None:
    """Tensors go both ways between a stock task and one of grpc+ar, all of them over plain TCP."""
    cluster = new_ar_cluster(protocols={stock_task: STOCK}, ps=1, worker=1)
    assert_works(cluster, None)
    for task in (PS, WORKER):
        status = cluster[task].status()
        assert (status["paths"], status["links"]) == ({}, 0)
        assert status["stream_bytes_sent"] == status["rendezvous_bytes"] == 0


def test_forced_fabric_to_a_stock_server(stock: Cluster) -> None:
    """A client that may use nothing but shared memory ends at its deadline; its log says why."""
    settings = {"targets": [stock.target(PS, AR)], "seconds": 3}
    outcome = run_program(PROGRAMS / "ar_client.py", settings, env={"AR_GRPC_FABRICS": "shm"})
    (attempt,) = outcome.result()["attempts"]
    # TensorFlow dials a master until its deadline, whatever the reason that it cannot be reached.
    assert attempt["error"] == "DeadlineExceededError", attempt
    assert 3 <= attempt["seconds"] < 3 + LATE
    assert "AR_GRPC_FABRICS=shm allows no tcp" in outcome.stderr
    assert "it does not speak AR-gRPC" in outcome.stderr


def test_forced_fabric_that_no_longer_reaches(new_ar_cluster: ClusterFactory) -> None:
    """A step to a task that now allows only tcp is Unavailable, at once, with the reason."""
    envs = {WORKER: {"AR_GRPC_FABRICS": "shm"}, PS: {}}
    cluster = new_ar_cluster(envs=envs, ps=1, worker=1)
    with session_at(cluster.target()) as session:
        step = large_step((PS, WORKER), 1)
        assert session.run(step) == 0.0
        envs[PS]["AR_GRPC_FABRICS"] = "tcp"
        cluster.restart(PS)
        began = time.monotonic()
        with pytest.raises(tf.errors.UnavailableError, match="AR_GRPC_FABRICS=shm allows no tcp"):
            session.run(step)
        assert time.monotonic() - began < 10
        envs[PS]["AR_GRPC_FABRICS"] = "shm"
        cluster.restart(PS)  # a session's close waits for its tasks


@pytest.mark.parametrize("value", ["nonsense", "^shm,tcp"])
def test_unusable_fabrics(value: str) -> None:
    """Neither a server nor a session is made, and the error names the value and the choice."""
    settings = {"server": {"ps": [f"127.0.0.1:{free_port()}"]}, "targets": [f"{AR}://127.0.0.1:1"]}
    outcome = run_program(
        PROGRAMS / "ar_client.py", {**settings, "seconds": 3}, env={"AR_GRPC_FABRICS": value}
    )
    for attempt in outcome.result()["attempts"]:
        assert attempt["error"] == "InvalidArgumentError"
        assert f"AR_GRPC_FABRICS={value}:" in attempt["text"]
        assert "known names: shm, tcp" in attempt["text"]


# --- what a server is told by raw sockets ---------------------------------------------------------

MAGIC = b"AR-gRPC\n"
VERSION = 1
HELLO, ANSWER, VERDICT = 1, 2, 3
NODE = b"0123456789abcdef"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
SETTINGS = 4  # the type of HTTP/2's first frame


def frame(kind: int, body: bytes, version: int = VERSION) -> bytes:
    return MAGIC + struct.pack("<HHI", version, kind, len(body)) + body


def text(value: str) -> bytes:
    return struct.pack("<H", len(value)) + value.encode()


def hello(*fabrics: str, version: int = VERSION) -> bytes:
    body = NODE + bytes([len(fabrics)]) + b"".join(text(name) for name in fabrics)
    return frame(HELLO, body, version)


def answer(fabric: str, address: str = "", token: bytes = b"?" * 16, reason: str = "") -> bytes:
    return frame(ANSWER, NODE + text(fabric) + text(address) + token + text(reason))


def verdict(established: bool, reason: str = "") -> bytes:
    return frame(VERDICT, bytes([established]) + text(reason))


def receive(connection: socket.socket, size: int) -> bytes:
    """`size` bytes; fewer where the peer closes before."""
    got = b""
    while len(got) < size:
        piece = connection.recv(size - len(got))
        if not piece:
            break
        got += piece
    return got


def receive_frame(connection: socket.socket) -> tuple[int, int, bytes]:
    """Version, kind and body of a frame of ours."""
    header = receive(connection, 16)
    assert header[:8] == MAGIC, header
    version, kind, size = struct.unpack("<HHI", header[8:])
    return version, kind, receive(connection, size)


def fields(body: bytes) -> dict[str, Any]:
    """What an answer says."""
    node, rest = body[:16], body[16:]
    texts = []
    for after in (0, 0, 16):
        if after:
            token, rest = rest[:after], rest[after:]
        (size,) = struct.unpack("<H", rest[:2])
        texts.append(rest[2 : 2 + size].decode())
        rest = rest[2 + size :]
    assert not rest
    return {
        "node": node,
        "fabric": texts[0],
        "address": texts[1],
        "token": token,
        "reason": texts[2],
    }


def seconds_until_closed(connection: socket.socket, most: float) -> float:
    """How long until the peer closes; what it says before is skipped. Fails after `most`."""
    began = time.monotonic()
    connection.settimeout(most)
    with suppress(ConnectionResetError):
        while connection.recv(65536):
            pass
    return time.monotonic() - began


def connect(cluster: Cluster, task: str = PS) -> socket.socket:
    job, index = task.split(":")
    host, port = cluster.spec[job][int(index)].split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def assert_serves_http2(connection: socket.socket) -> None:
    """The preface is answered by a SETTINGS frame on this very connection."""
    connection.sendall(PREFACE)
    header = receive(connection, 9)
    assert len(header) == 9 and header[3] == SETTINGS, header


def test_plain_http2(pair: Cluster) -> None:
    """Whole, and byte by byte, so that the server cannot know at once what it will be."""
    with closing(connect(pair)) as connection:
        assert_serves_http2(connection)
    with closing(connect(pair)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in PREFACE[:-1]:
            connection.sendall(bytes([byte]))
            time.sleep(0.002)
        connection.sendall(PREFACE[-1:])
        header = receive(connection, 9)
        assert header[3] == SETTINGS
    assert summed(pair.target(PS)) == SUM


BROKEN = {
    "garbage": bytes(range(256)) * 4,
    "the magic, then garbage": MAGIC + b"\xff" * 64,
    "a frame that is too long": MAGIC + struct.pack("<HHI", VERSION, HELLO, 4097) + b"x" * 4097,
    "an answer for a hello": answer("shm"),
    "too many fabrics": frame(HELLO, NODE + bytes([17]) + text("shm") * 17),
    "a text beyond the end": frame(HELLO, NODE + bytes([1]) + struct.pack("<H", 500) + b"shm"),
    "more than a hello": frame(HELLO, NODE + bytes([0]) + b"more"),
    "an empty hello": frame(HELLO, b""),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_hello(pair: Cluster, name: str) -> None:
    """The connection is closed, and nothing else comes of it."""
    with closing(connect(pair)) as connection:
        connection.sendall(BROKEN[name])
        assert seconds_until_closed(connection, most=10) < LATE
    assert summed(pair.target(PS)) == SUM


@pytest.mark.parametrize("version", [0, 2, 65535])
def test_hello_of_another_version(pair: Cluster, version: int) -> None:
    """It is answered in our version, says so, and the connection goes on as plain HTTP/2."""
    with closing(connect(pair)) as connection:
        connection.sendall(hello("shm", version=version))
        got_version, kind, body = receive_frame(connection)
        assert (got_version, kind) == (VERSION, ANSWER)
        said = fields(body)
        assert said["fabric"] == said["address"] == ""
        assert f"version {version}" in said["reason"]
        assert_serves_http2(connection)


@pytest.mark.parametrize("fabrics", [(), ("tcp",), ("verbs", "carrier-pigeon")])
def test_hello_without_a_common_fabric(pair: Cluster, fabrics: tuple[str, ...]) -> None:
    """Both stay on TCP; the client needs no verdict."""
    with closing(connect(pair)) as connection:
        connection.sendall(hello(*fabrics))
        version, kind, body = receive_frame(connection)
        assert (version, kind) == (VERSION, ANSWER)
        said = fields(body)
        assert said["fabric"] == "" and said["reason"]
        assert_serves_http2(connection)


def test_answer_to_a_hello(pair: Cluster) -> None:
    """Each has its own token; a client that then stays on TCP is served on the connection."""
    answers = []
    for _ in range(2):
        with closing(connect(pair)) as connection:
            connection.sendall(hello("verbs", "shm", "tcp"))
            _, kind, body = receive_frame(connection)
            answers.append(fields(body))
            assert kind == ANSWER
            connection.sendall(verdict(False, "the test says so"))
            assert_serves_http2(connection)
    first, second = answers
    assert first["fabric"] == second["fabric"] == "shm"
    assert re.fullmatch(r"@ar-grpc\.[0-9a-f]{32}", first["address"])
    assert first["address"] == second["address"] and first["node"] == second["node"]
    assert first["token"] != second["token"] and len(set(first["token"])) > 4


SILENT = {
    "from the start": b"",
    "in the magic": MAGIC[:5],
    "in the hello": hello("shm")[:20],
    "after the hello": hello("shm"),
    "in the verdict": hello("shm") + verdict(True)[:12],
}


def test_silent_clients(pair: Cluster) -> None:
    """Wherever a client falls silent, it is let go after five seconds; all at once here."""
    assert_works(pair, "shm")
    before = descriptors(pair[PS].pid)
    began = time.monotonic()
    connections = {name: connect(pair) for name in SILENT}
    try:
        for name, connection in connections.items():
            connection.sendall(SILENT[name])
        assert summed(pair.target(PS)) == SUM  # others are served meanwhile
        for connection in connections.values():
            seconds_until_closed(connection, most=10)
        assert HANDSHAKE - 0.1 < time.monotonic() - began < HANDSHAKE + LATE
    finally:
        for connection in connections.values():
            connection.close()
    settle(before + 1, descriptors, pair[PS].pid)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(verdict(True), id="established, but nothing attached"),
        pytest.param(frame(VERDICT, b"\2" + text("")), id="neither established nor not"),
        pytest.param(hello("shm"), id="a second hello"),
        pytest.param(b"garbage" * 9, id="garbage"),
        pytest.param(PREFACE, id="HTTP/2 without a verdict"),
    ],
)
def test_broken_verdict(pair: Cluster, said: bytes) -> None:
    """The connection is closed at once."""
    with closing(connect(pair)) as connection:
        connection.sendall(hello("shm"))
        assert receive_frame(connection)[1] == ANSWER
        connection.sendall(said)
        assert seconds_until_closed(connection, most=10) < LATE
    assert summed(pair.target(PS)) == SUM


def test_attach_with_a_wrong_token(pair: Cluster) -> None:
    """The Unix socket refuses who was not introduced, and who does not know how to ask."""
    with closing(connect(pair)) as connection:
        connection.sendall(hello("shm"))
        said = fields(receive_frame(connection)[2])
        region = b"ARSH" + struct.pack("<H", 1) + b"!" * 16 + struct.pack("<QQ", MIB, 0)
        for packet in (region, b"garbage", region[:-1], b"ARSH\xff\xff" + region[6:]):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as unix:
                unix.settimeout(10)
                unix.connect("\0" + said["address"][1:])
                unix.send(packet)
                back = unix.recv(1024)
                assert back[:4] == b"ARSH" and struct.unpack("<I", back[6:10])[0] != 0, back
        connection.sendall(verdict(False))
        assert_serves_http2(connection)


def test_thousands_of_broken_connections(pair: Cluster) -> None:
    """They leave no descriptor, no link, and a server that still serves."""
    assert_works(pair, "shm")
    before, links = descriptors(pair[PS].pid), pair[PS].status()["links"]
    openings = [*BROKEN.values(), *SILENT.values(), hello("shm", version=9), hello(), PREFACE]
    for opening, number in zip(itertools.cycle(openings), range(3000)):
        with closing(connect(pair)) as connection:
            connection.sendall(opening)
            if opening == SILENT["after the hello"] and number % 2:
                receive_frame(connection)
                connection.sendall(verdict(True))
    assert_works(pair, "shm")
    settle(before + 2, descriptors, pair[PS].pid, seconds=15)
    assert eventually(lambda: pair[PS].status()["links"] <= links)


# --- what a client is told by a server that is none -----------------------------------------------


class Fake(threading.Thread):
    """A server that treats its first connection as `first` does, and relays others to `backend`.

    `first` gets the connection once the hello has been read. If it returns True the rest of that
    connection is relayed, too; otherwise it is closed.
    """

    def __init__(self, first: Callable[[socket.socket], bool], backend: str | None) -> None:
        super().__init__(daemon=True)
        self._first = first
        self._backend = backend
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listening]
        #: How each connection began.
        self.openings: list[bytes] = []
        self.start()

    @property
    def target(self) -> str:
        return f"{AR}://127.0.0.1:{self._listening.getsockname()[1]}"

    def run(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                connection.settimeout(30)
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError):
            opening = receive(connection, len(MAGIC))
            self.openings.append(opening)
            if len(self.openings) == 1:
                assert opening == MAGIC
                size = struct.unpack("<HHI", receive(connection, 8))[2]
                receive(connection, size)
                opening = b""
                if not self._first(connection):
                    connection.close()
                    return
            if self._backend is None:
                connection.close()
                return
            self._relay(connection, opening)

    def _relay(self, connection: socket.socket, opening: bytes) -> None:
        host, port = self._backend.split(":") if self._backend else ("", "0")
        backend = socket.create_connection((host, int(port)))
        self._open.append(backend)
        backend.sendall(opening)
        threading.Thread(target=self._pump, args=(backend, connection), daemon=True).start()
        self._pump(connection, backend)

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while True:
                piece = source.recv(65536)
                if not piece:
                    break
                sink.sendall(piece)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def says(*parts: bytes) -> Callable[[socket.socket], bool]:
    """Sends these and closes."""

    def first(connection: socket.socket) -> bool:
        connection.sendall(b"".join(parts))
        return False

    return first


def falls_silent(*parts: bytes) -> Callable[[socket.socket], bool]:
    """Sends these, then nothing until the client gives up."""

    def first(connection: socket.socket) -> bool:
        connection.sendall(b"".join(parts))
        connection.recv(1)
        return False

    return first


def goes_on(said: bytes) -> Callable[[socket.socket], bool]:
    """Sends this and takes the connection for HTTP/2 from then on."""

    def first(connection: socket.socket) -> bool:
        connection.sendall(said)
        return True

    return first


OTHER_VERSION = answer("shm", "@x").replace(struct.pack("<H", VERSION), struct.pack("<H", 7), 1)

MUTE = "it did not answer the hello"
#: The server's behaviour, and what the client's log says of it.
RECONNECTS = {
    "garbage": (says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "it does not speak AR-gRPC"),
    "HTTP/2": (says(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])), "it does not speak AR-gRPC"),
    "a close": (says(), "it closed the connection at the hello"),
    "a close in the answer": (says(answer("shm")[:30]), "it closed the connection at the hello"),
    "silence in the answer": (falls_silent(answer("shm")[:30]), MUTE),
    "a hello": (says(hello("shm")), "a frame of kind 1 instead of 2"),
    "a malformed answer": (says(frame(ANSWER, NODE + text("shm"))), "malformed answer"),
    "an unknown fabric": (says(answer("verbs")), "a fabric that was not offered: verbs"),
    "tcp as a fabric": (says(answer("tcp")), "a fabric that was not offered: tcp"),
}


def assert_over_tcp(
    stock: Cluster, capfd: Any, first: Any, why: str, *, openings: list[bytes]
) -> None:
    """A step over a fake server works over TCP, in time, and the log says why it is TCP."""
    waits = HANDSHAKE if why == MUTE else 0
    with closing(Fake(first, stock.spec["ps"][0])) as fake:
        began = time.monotonic()
        assert summed(fake.target) == SUM
        assert waits <= time.monotonic() - began < waits + LATE
        assert fake.openings == openings
        port = fake.target.split(":")[-1]
    log = capfd.readouterr().err
    assert re.search(rf"connected to ipv4:127.0.0.1:{port} over tcp: .*{why}", log), log


@pytest.mark.parametrize("name", RECONNECTS)
def test_server_that_is_none(stock: Cluster, capfd: Any, name: str) -> None:
    """The client connects anew without a hello, and works."""
    assert_over_tcp(stock, capfd, *RECONNECTS[name], openings=[MAGIC, PREFACE[:8]])


@pytest.mark.parametrize(("name", "next_opening"), [("garbage", PREFACE[:8]), ("a close", MAGIC)])
def test_what_is_remembered(pair: Cluster, name: str, next_opening: bytes) -> None:
    """What answered otherwise is spared the hello; what only closed may have been a dying peer."""
    with closing(Fake(RECONNECTS[name][0], pair.spec["ps"][0])) as fake:
        for _ in range(2):
            assert summed(fake.target) == SUM
        assert fake.openings == [MAGIC, PREFACE[:8], next_opening]


def attaches(address: str, token: bytes = b"?" * 16) -> Callable[[socket.socket], bool]:
    """Answers with this address, and demands that the client could not get there."""

    def first(connection: socket.socket) -> bool:
        connection.sendall(answer("shm", address, token))
        version, kind, body = receive_frame(connection)
        assert (version, kind, body[0]) == (VERSION, VERDICT, 0)
        return True

    return first


NOWHERE = "@ar-grpc." + "0" * 32
STAYS = {
    "another version": (goes_on(OTHER_VERSION), "the peer speaks version 7, this end speaks 1"),
    "no fabric": (goes_on(answer("", reason="it is Sunday")), "it is Sunday"),
    "nobody there": (attaches(NOWHERE), "connecting to @ar-grpc.0+: .*refused"),
    "no address": (attaches(""), "not a shared-memory address"),
    "another address": (attaches("/etc/passwd"), "not a shared-memory address: /etc/passwd"),
    "no such path": (attaches(f"/nowhere/{NOWHERE[1:]}.1.sock"), "No such file"),
}


@pytest.mark.parametrize("name", STAYS)
def test_fabric_that_cannot_be_had(stock: Cluster, capfd: Any, name: str) -> None:
    """The same connection goes on as TCP."""
    assert_over_tcp(stock, capfd, *STAYS[name], openings=[MAGIC])


def test_wrong_token(stock: Cluster, pair: Cluster, capfd: Any) -> None:
    """The address is a live server's, the token is not: the server refuses, TCP goes on."""
    with closing(connect(pair)) as connection:
        connection.sendall(hello("shm"))
        address = fields(receive_frame(connection)[2])["address"]
    with closing(Fake(attaches(address), stock.spec["ps"][0])) as fake:
        assert summed(fake.target) == SUM
        assert fake.openings == [MAGIC]
    assert "over tcp: the peer refused: " in capfd.readouterr().err


def test_listener_that_is_mute(stock: Cluster, capfd: Any) -> None:
    """A Unix socket that accepts and says nothing costs two seconds."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as unix:
        address = f"@ar-grpc.{os.urandom(16).hex()}"
        unix.bind("\0" + address[1:])
        unix.listen()
        with closing(Fake(attaches(address), stock.spec["ps"][0])) as fake:
            began = time.monotonic()
            assert summed(fake.target) == SUM
            assert 2 <= time.monotonic() - began < 2 + LATE
            assert fake.openings == [MAGIC]
    assert f"no answer from {address} within 2000 ms" in capfd.readouterr().err


DIES = {
    "after the answer": says(answer("shm", NOWHERE)),
    "after the verdict": lambda connection: bool(attaches(NOWHERE)(connection) and False),
}


@pytest.mark.parametrize("name", DIES)
def test_server_dies_in_the_handshake(stock: Cluster, name: str) -> None:
    """gRPC connects again, and this time it works."""
    with closing(Fake(DIES[name], stock.spec["ps"][0])) as fake:
        began = time.monotonic()
        assert summed(fake.target) == SUM
        assert time.monotonic() - began < RECONNECT + LATE
        assert fake.openings[0] == fake.openings[1] == MAGIC
        assert fake.openings[-1] == PREFACE[:8]


def test_server_that_always_closes() -> None:
    """There is nothing to fall back to: the session ends at its deadline."""
    with closing(Fake(says(), None)) as fake:
        began = time.monotonic()
        with pytest.raises(tf.errors.DeadlineExceededError):
            summed(fake.target, seconds=3)
        assert 3 <= time.monotonic() - began < 3 + LATE
        assert fake.openings[:2] == [MAGIC, PREFACE[:8]]


# --- peers that are killed or stopped -------------------------------------------------------------


class Loop(threading.Thread):
    """Runs a step whose value is 0.0 over and over until it fails, or is to stop."""

    def __init__(self, session: Any, step: Any) -> None:
        super().__init__(daemon=True)
        self._run = session.make_callable(step)
        self._enough = threading.Event()
        self.steps = 0
        self.wrong: list[Any] = []
        self.error: BaseException | None = None
        self.failed_at = 0.0
        self.start()

    def run(self) -> None:
        try:
            while not self._enough.is_set():
                value = self._run()
                if value != 0.0:
                    self.wrong.append(value)
                self.steps += 1
        except Exception as error:
            self.failed_at = time.monotonic()
            self.error = error

    def wait_steps(self, count: int) -> None:
        """Until `count` more steps have ended."""
        wanted = self.steps + count
        eventually(lambda: self.steps >= wanted or self.error is not None, 30)
        assert self.error is None and self.steps >= wanted, self.error

    def finish(self) -> BaseException | None:
        self._enough.set()
        self.join(30)
        assert not self.is_alive(), "the step hangs"
        assert not self.wrong, f"wrong values: {self.wrong[:5]}"
        return self.error

    def failure(self, since: float) -> None:
        """It must have failed as the loss of the ps fails, within SEEN seconds since then."""
        self.join(30)
        error = self.finish()
        assert lost(error, PS), repr(error)
        assert self.failed_at - since < SEEN


def test_idle_peer_killed(pair: Cluster) -> None:
    """The other end knows it without a step, and reaches the next one over shared memory."""
    assert_works(pair, "shm")
    assert pair[WORKER].status()["links"] > 0
    pair[PS].kill()
    assert eventually(lambda: pair[WORKER].status()["links"] == 0, SEEN)
    pair.restart(PS)
    assert_works(pair, "shm")


@pytest.mark.parametrize("way", [(PS, WORKER), (WORKER, PS)], ids=["sender", "receiver"])
@pytest.mark.parametrize("mib", [64, 256])
def test_peer_killed_in_a_rendezvous(pair: Cluster, way: tuple[str, str], mib: int) -> None:
    """The ps dies while it sends, or receives; what the survivor held for that is free again."""
    assert_works(pair, "shm")
    in_use = pair[WORKER].status()["arena"]["in_use"]
    with session_at(pair.target()) as session:
        loop = Loop(session, large_step(way, mib // 4, parts=4))
        loop.wait_steps(2)
        time.sleep(0.03)
        killed = time.monotonic()
        pair[PS].kill()
        loop.failure(killed)
        wait_no_offers(pair, WORKER)
        settle(in_use + MIB, lambda: pair[WORKER].status()["arena"]["in_use"])
        pair.restart(PS)  # a session's close waits for its tasks
    assert_works(pair, "shm")


@pytest.mark.parametrize(
    ("fabric", "kills"),
    [
        ("tcp", 2),
        pytest.param("shm", 20, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
        pytest.param("tcp", 20, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)
def test_kills_are_seen_within_a_second(pair: Cluster, fabric: str, kills: int) -> None:
    """Of the sender and of the receiver, in small steps and in large ones."""
    assert_works(pair, fabric)
    seconds = []
    for kill in range(kills):
        with session_at(pair.target()) as session:
            way = ((PS, WORKER), (WORKER, PS))[kill % 2]
            loop = Loop(session, large_step(way, 1 if kill % 4 < 2 else 16, parts=4))
            loop.wait_steps(3)
            time.sleep(0.01 * (kill % 7))
            killed = time.monotonic()
            pair[PS].kill()
            loop.failure(killed)
            seconds.append(round(loop.failed_at - killed, 3))
            pair.restart(PS)  # a session's close waits for its tasks
    print(f"{fabric}: seen after {sorted(seconds)} s")
    assert_works(pair, fabric)


def test_receiver_killed_while_it_holds_offers(pair: Cluster) -> None:
    """Stopped first, so that it is sure to hold some: they are let go when it dies."""
    way = (WORKER, PS)
    with session_at(pair.target()) as session:
        loop = Loop(session, large_step(way, 16, parts=8))
        loop.wait_steps(2)
        for attempt in range(50):
            time.sleep(0.003 * (attempt % 7))
            pair[PS].signal(signal.SIGSTOP)
            time.sleep(0.3)
            if offers(pair, WORKER):
                break
            pair[PS].signal(signal.SIGCONT)
            loop.wait_steps(1)
        assert offers(pair, WORKER) > 0
        killed = time.monotonic()
        pair[PS].kill()
        loop.failure(killed)
        wait_no_offers(pair, WORKER, seconds=SEEN)
        pair.restart(PS)
    assert_works(pair, "shm")


def test_stopped_peer_goes_on(pair: Cluster) -> None:
    """Three seconds of SIGSTOP in the middle of steps cost three seconds and nothing else."""
    for way in ((PS, WORKER), (WORKER, PS)):
        with session_at(pair.target()) as session:
            loop = Loop(session, large_step(way, 8, parts=4))
            loop.wait_steps(3)
            pair[PS].signal(signal.SIGSTOP)
            try:
                time.sleep(0.5)
                before = loop.steps
                time.sleep(2.5)
                assert loop.steps == before
            finally:
                pair[PS].signal(signal.SIGCONT)
            loop.wait_steps(5)
            assert loop.finish() is None
        wait_no_offers(pair, PS, WORKER)
    assert_works(pair, "shm")


# --- what runs out, and what is left behind -------------------------------------------------------


def quiet_descriptors(pid: int) -> set[int]:
    """Those of a process, once none is opened or closed any more: connections close late."""
    seen: list[set[int]] = []

    def quiet() -> bool:
        seen.append({int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()})
        return len(seen) > 3 and seen[-1] == seen[-2] == seen[-3]

    assert eventually(quiet, every=0.2), seen
    return seen[-1]


@contextmanager
def only_free(pid: int, free: int) -> Iterator[None]:
    """Another process may open `free` descriptors more than it has."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = quiet_descriptors(pid)
    limit = list(itertools.islice((i for i in itertools.count() if i not in used), free + 1))[-1]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("free", [3, 4, 6])
def test_server_with_few_descriptors(pair: Cluster, free: int) -> None:
    """Its TCP is served; who attaches over shared memory, and brings three more, is refused."""
    assert_works(pair, "shm")
    pid = pair[PS].pid
    before = descriptors(pid)
    with only_free(pid, free), closing(connect(pair)) as connection:
        connection.sendall(hello("shm"))
        said = fields(receive_frame(connection)[2])
        assert said["fabric"] == "shm"
        passed = socket.socketpair()
        request = b"ARSH" + struct.pack("<H", 1) + said["token"] + struct.pack("<QQ", MIB, 0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as unix:
            unix.settimeout(10)
            unix.connect("\0" + said["address"][1:])
            socket.send_fds(unix, [request], [passed[0].fileno()] * 3)
            back = unix.recv(1024)
            assert struct.unpack("<I", back[6:10])[0] != 0, back
            if free < 5:
                assert b"descriptor table full" in back
        for each in passed:
            each.close()
        connection.sendall(verdict(False))
        assert_serves_http2(connection)
    settle(before + QUEUES, descriptors, pid)
    assert_works(pair, "shm")


@pytest.mark.parametrize("free", [0, 1, 2])
def test_server_without_descriptors(pair: Cluster, free: int) -> None:
    """Who comes then waits; the listener outlives it, and serves him once there are some again."""
    assert_works(pair, "shm")
    before = descriptors(pair[PS].pid)
    with ExitStack() as open_connections:
        with only_free(pair[PS].pid, free):
            for _ in range(free + 1):
                last = open_connections.enter_context(closing(connect(pair)))
                last.sendall(hello("shm"))
            last.settimeout(1)
            with pytest.raises(TimeoutError):
                last.recv(1)
        last.settimeout(10)
        assert fields(receive_frame(last)[2])["fabric"] == "shm"
    settle(before + QUEUES, descriptors, pair[PS].pid)
    assert_works(pair, "shm")


def test_client_with_few_descriptors(pair: Cluster) -> None:
    """Fewer than it needs: an error in time, never its end; with some more tcp, at last shm."""
    limit = 2.0
    settings = {
        "target": pair.target(PS, AR),
        "other": pair.target(WORKER, AR),
        "seconds": limit,
        "most": 24,
    }
    *few, last = run_program(PROGRAMS / "few_descriptors.py", settings).result()
    for row in few:
        # A session is made, run and closed.
        assert row["seconds"] < 3 * limit + LATE, row
        if "error" in row:
            assert row["error"] in {"UnavailableError", "DeadlineExceededError"}, row
        else:
            assert row["value"] == 100000 * 99999 // 2, row
    paths = [row.get("path") for row in few]
    assert paths[-1] == "shm" and "tcp" in paths, few
    assert last["value"] == 100000 * 99999 // 2 and last["path"] == "shm"


def unix_names(pid: int) -> set[str]:
    """The abstract names and paths of ours at which a process listens."""
    sockets = {
        target[len("socket:[") : -1]
        for target in (str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir())
        if target.startswith("socket:[")
    }
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return {row[7] for row in rows if len(row) > 7 and row[6] in sockets and "ar-grpc" in row[7]}


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """pytest's own is too long for the path of a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="ar-") as folder:
        yield Path(folder)


def test_nothing_is_left_after_kills(new_ar_cluster: ClusterFactory, short_folder: Path) -> None:
    """kill -9 of all: no name, no file; the next server sweeps the shared directory."""
    shared = short_folder
    memory = set(os.listdir("/dev/shm"))  # noqa: PTH208
    cluster = new_ar_cluster({"AR_GRPC_SHM_DIR": str(shared)}, ps=1, worker=1)
    assert_works(cluster, "shm")
    names = unix_names(cluster[PS].pid) | unix_names(cluster[WORKER].pid)
    files = set(shared.iterdir())
    assert len(names) >= 2 and len(files) == 2, (names, files)
    with session_at(cluster.target()) as session:
        loop = Loop(session, large_step((PS, WORKER), 16, parts=4))
        loop.wait_steps(2)
        for task in (PS, WORKER):
            cluster[task].signal(signal.SIGKILL)
        for task in (PS, WORKER):
            cluster[task].kill()
        abstract = {name for name in names if name.startswith("@")}
        left = Path("/proc/net/unix").read_text()
        assert abstract and not [name for name in abstract if name in left]
        assert not {name for name in set(os.listdir("/dev/shm")) - memory if "ar" in name}  # noqa: PTH208
        for task in (PS, WORKER):
            cluster.restart(task)
        # The master is another one.
        error = loop.finish()
        assert isinstance(error, tf.errors.AbortedError) and "is not found" in str(error), error
    assert_works(cluster, "shm")
    now = set(shared.iterdir())
    assert len(now) == 2 and not now & files, now


def cpu_seconds(pid: int) -> float:
    """Of all threads, from the scheduler's own nanoseconds."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def test_idle_servers_burn_no_cpu(pair: Cluster) -> None:
    """Connected, after steps: less than 1 % of a core for both together."""
    assert_works(pair, "shm")
    time.sleep(1)
    pids = [pair[task].pid for task in (PS, WORKER)]
    before = sum(cpu_seconds(pid) for pid in pids)
    time.sleep(5)
    used = sum(cpu_seconds(pid) for pid in pids) - before
    assert pair[WORKER].status()["links"] > 0
    assert used < 0.05, f"{used:.3f} s of CPU in 5 s"
