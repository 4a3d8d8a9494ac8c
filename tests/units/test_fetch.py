"""Downloads: resumed, verified, and refused by name, against a real HTTP server on loopback."""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from artf_cli import fetch, pins
from artf_cli.errors import ArtfError

BODY = bytes(range(256)) * 4096
SHA = hashlib.sha256(BODY).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves BODY with ranges; at /cut it closes the first connection half way."""

    ranges: ClassVar[list[str]] = []
    cuts = 0

    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
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


@pytest.fixture
def server() -> Iterator[str]:
    Handler.ranges, Handler.cuts = [], 0
    http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http_server.serve_forever)
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
