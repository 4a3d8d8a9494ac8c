"""A package index of this host, and wheels for it."""

from __future__ import annotations

import base64
import http.server
import io
import os
import socketserver
import ssl
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from urllib import parse

import pytest

from artf_cli import package_index

LOGIN = ("somebody", "p@ss word")


def without_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """pip and uv are told nothing by this machine or its user, and the cache is the test's own."""
    for name in list(os.environ):
        known = name.startswith(("PIP_", "UV_", "SSL_CERT", "ARTF_UV", "ARTF_PIP"))
        if known or name.endswith("CA_BUNDLE") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "XDG_CONFIG_DIRS"):
        monkeypatch.setenv(name, str(tmp_path / name))
    # Also what /etc/pip.conf says here.
    monkeypatch.setattr(package_index, "_GLOBAL", tmp_path / "etc/pip.conf")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setenv("ARTF_CACHE", str(tmp_path / "cache"))


def speak_tls(server: socketserver.TCPServer, folder: Path) -> Path:
    """From now on, by a certificate of this host that is its own authority, which it returns."""
    cert, key = folder / "ours.pem", folder / "ours.key"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    words += ["-subj", "/CN=ours", "-addext", "subjectAltName=IP:127.0.0.1"]
    words += ["-addext", "basicConstraints=critical,CA:TRUE"]
    words += ["-out", str(cert), "-keyout", str(key)]
    subprocess.run(words, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return cert


class Index(http.server.ThreadingHTTPServer):
    """An index with what a test puts there; it notes what it was asked, and with which login."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.holds: dict[str, bytes] = {}
        self.moved: dict[str, str] = {}
        self.asked: list[tuple[str, str]] = []
        self.fails = 0  # so many answers more
        self.breaks_off = 0
        self.wants_login = False
        self.scheme = "http"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}"

    @property
    def with_login(self) -> str:
        """The address with LOGIN in it."""
        return self.address.replace("://", "://{}:{}@".format(*map(parse.quote, LOGIN)))

    def has(self, package: str, file: str, content: bytes) -> None:
        """It has a file, which its package's page names."""
        self.holds[f"/simple/{package}/"] = f'<a href="/files/{file}">x</a>'.encode()
        self.holds[f"/files/{file}"] = content

    def has_a_certificate(self, folder: Path) -> Path:
        """As `speak_tls`."""
        self.scheme = "https"
        return speak_tls(self, folder)

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]


class _Answers(http.server.BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        login = self.headers.get("Authorization", "")
        self.server.asked.append((self.path, login))
        # As of a proxy: the whole address.
        path = "/" + self.path.partition("://")[2].partition("/")[2] if "://" in self.path else ""
        path = path or self.path
        word = base64.b64encode(":".join(LOGIN).encode()).decode()
        if self.server.fails > 0:
            self.server.fails -= 1
            self.send_error(503)
        elif self.server.wants_login and login != f"Basic {word}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()
        elif path in self.server.moved:
            self.send_response(302)
            self.send_header("Location", self.server.moved[path])
            self.end_headers()
        elif path in self.server.holds:
            content = self.server.holds[path]
            self.send_response(200)
            self.send_header(
                "Content-Type", "text/html" if path.endswith("/") else "application/zip"
            )
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            half = self.server.breaks_off > 0
            self.server.breaks_off -= half
            self.wfile.write(content[: len(content) // 2] if half else content)
        else:
            self.send_error(404)

    def do_HEAD(self) -> None:
        self.send_error(405)

    def log_message(self, *_: object) -> None:
        pass


def packed(name: str) -> bytes:
    """A wheel of one module, which says its name."""
    content = io.BytesIO()
    info = f"{name}-1.dist-info"
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(f"{name}.py", f"SAYS = {name!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return content.getvalue()
