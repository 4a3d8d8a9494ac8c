"""Downloads: resumed, verified, and refused by name, against a real HTTP server on loopback."""

from __future__ import annotations

import hashlib
import http.server
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import ClassVar

import pytest

from artf_cli import fetch, pins
from artf_cli.errors import ArtfError
from common.index import without_settings

BODY = bytes(range(256)) * 4096
SHA = hashlib.sha256(BODY).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves BODY with ranges; at /cut it closes the first connection half way.

    At /busy it first gives the answers of `busy`: a status and what Retry-After says.
    """

    ranges: ClassVar[list[str]] = []
    cuts = 0
    busy: ClassVar[list[tuple[int, str]]] = []

    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
            return
        if self.path == "/busy" and Handler.busy:
            status, after = Handler.busy.pop(0)
            self.send_response(status)
            self.send_header("Retry-After", after)
            self.end_headers()
            return
        wanted = self.headers.get("Range", "")
        Handler.ranges.append(wanted)
        begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(BODY) - begin))
        self.end_headers()
        if self.path == "/cut" and Handler.cuts == 0:
            Handler.cuts += 1
            self.wfile.write(BODY[begin : len(BODY) // 2])
            self.close_connection = True
            return
        self.wfile.write(BODY[begin:])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_settings(monkeypatch, tmp_path)


@pytest.fixture
def server() -> Iterator[str]:
    Handler.ranges, Handler.cuts, Handler.busy = [], 0, []
    http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http_server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{http_server.server_address[1]}"
    http_server.shutdown()
    thread.join()
    http_server.server_close()


def test_a_download_gets_its_name_when_its_hash_is_right(server: str, tmp_path: Path) -> None:
    target = fetch.download(f"{server}/x", tmp_path / "x", SHA)
    assert target.read_bytes() == BODY
    assert list(tmp_path.iterdir()) == [target]


def test_an_interrupted_download_goes_on_where_it_stopped(server: str, tmp_path: Path) -> None:
    (tmp_path / "x.part").write_bytes(BODY[:1000])
    fetch.download(f"{server}/x", tmp_path / "x", SHA)
    assert Handler.ranges == ["bytes=1000-"]
    assert (tmp_path / "x").read_bytes() == BODY


def test_a_connection_cut_half_way_is_taken_up_again(server: str, tmp_path: Path) -> None:
    fetch.download(f"{server}/cut", tmp_path / "x", SHA)
    assert len(Handler.ranges) == 2
    assert int(Handler.ranges[1].removeprefix("bytes=").rstrip("-")) <= len(BODY) // 2
    assert (tmp_path / "x").read_bytes() == BODY


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, none of which is made."""
    made: list[float] = []
    monkeypatch.setattr(time, "sleep", made.append)
    return made


@pytest.mark.parametrize(
    ("answers", "waited"),
    [
        ([(503, ""), (500, "soon"), (599, "0")], [1, 2, 3]),
        ([(429, "7"), (503, "1"), (502, "30")], [7, 2, 30]),
        ([(503, formatdate(0, usegmt=True))], [1]),
    ],
)
def test_a_server_that_is_busy_is_asked_again(
    server: str,
    tmp_path: Path,
    pauses: list[float],
    answers: list[tuple[int, str]],
    waited: list[float],
) -> None:
    (tmp_path / "x.part").write_bytes(BODY[:1000])
    Handler.busy = list(answers)
    assert fetch.download(f"{server}/busy", tmp_path / "x", SHA).read_bytes() == BODY
    assert pauses == waited
    assert Handler.ranges == ["bytes=1000-"]


@pytest.mark.parametrize(
    ("answers", "asked", "said"),
    [
        ([(503, "")] * 9, 4, "503 Service Unavailable"),
        ([(503, "31")] * 9, 1, "503 Service Unavailable"),
        ([(404, "")] * 9, 1, "404 Not Found"),
        ([(403, "1")] * 9, 1, "403 Forbidden"),
    ],
)
def test_an_answer_that_stays_is_named(
    server: str,
    tmp_path: Path,
    pauses: list[float],
    answers: list[tuple[int, str]],
    asked: int,
    said: str,
) -> None:
    Handler.busy = list(answers)
    with pytest.raises(fetch.NotReached) as failed:
        fetch.download(f"{server}/busy", tmp_path / "x", SHA)
    assert str(failed.value) == f"{server}/busy: {said}"
    assert len(pauses) == asked - 1
    assert len(Handler.busy) == len(answers) - asked


def hang_up(connection: socket.socket) -> None:
    connection.recv(4096)


def reset(connection: socket.socket) -> None:
    connection.recv(4096)
    # Closed at once: the peer gets a reset instead of an end.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def answer_plainly(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def keep_silent(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


@pytest.mark.parametrize(
    ("scheme", "answer", "said"),
    [
        ("http", None, "ConnectionError: Connection refused"),
        ("http", reset, "ConnectionError: Connection reset by peer"),
        ("http", hang_up, "ConnectionError: Remote end closed connection without response"),
        ("http", keep_silent, "ReadTimeout: timed out"),
        ("https", answer_plainly, "SSLError: [SSL: "),
    ],
)
def test_what_failed_is_said_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pauses: list[float],
    scheme: str,
    answer: Callable[[socket.socket], None] | None,
    said: str,
) -> None:
    monkeypatch.setattr(fetch, "_TIMEOUT_S", (0.2, 0.2))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/x"

        def serve() -> None:
            for _ in range(fetch._TRIES):
                connection, _ = listener.accept()
                with connection:
                    assert answer is not None
                    answer(connection)

        if answer is None:
            listener.close()
        thread = threading.Thread(target=serve if answer else int)
        thread.start()
        with pytest.raises(fetch.NotReached) as failed:
            fetch.download(url, tmp_path / "x", SHA)
        thread.join()
    assert str(failed.value).startswith(f"{url}: {said}")
    assert "\n" not in str(failed.value)
    assert pauses == [1, 2, 3]


def test_a_name_that_does_not_resolve_is_asked_for_once(
    tmp_path: Path, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A proxy would resolve it, and has its own words.
    monkeypatch.setenv("no_proxy", "*")
    # Which of the two depends on whether the machine has a name server.
    said = "ConnectionError: (Name or service not known|Temporary failure in name resolution)"
    with pytest.raises(fetch.NotReached, match=said):
        fetch.download("http://no.such.invalid/x", tmp_path / "x", SHA)
    assert pauses == []


def test_wrong_bytes_name_the_file_and_both_hashes(server: str, tmp_path: Path) -> None:
    wanted = "0" * 64
    with pytest.raises(ArtfError) as refused:
        fetch.download(f"{server}/x", tmp_path / "x", wanted)
    assert wanted in str(refused.value)
    assert SHA in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_changed_byte_in_the_cache_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARTF_CACHE", str(tmp_path))
    pin = pins.load().sources["grpc"]
    folder = tmp_path / "downloads" / pin.upstream.sha256[:16]
    folder.mkdir(parents=True)
    path = folder / "grpc-1.51.1.tar.gz"
    path.write_bytes(b"not it")
    with pytest.raises(ArtfError) as refused:
        fetch.source("grpc", pin)
    for word in (str(path), pin.upstream.sha256, hashlib.sha256(b"not it").hexdigest()):
        assert word in str(refused.value)


def test_no_network_names_both_places_and_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARTF_CACHE", str(tmp_path))
    monkeypatch.setattr(fetch, "_TRIES", 1)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    with pytest.raises(ArtfError) as refused:
        fetch.source("grpc", pins.load().sources["grpc"])
    assert "github.com/grpc/grpc" in str(refused.value)
    assert "no apt-get" in str(refused.value)
    assert "check the network" in refused.value.cure
