"""Sources and base wheels come by pip's proxy, certificates and logins, from real servers here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from artf_cli import fetch
from artf_cli.errors import ArtfError
from artf_cli.fetch import NotReached
from artf_cli.pins import BaseWheel
from common.index import Index, packed, without_settings

FILE = "tiny-1-py3-none-any.whl"
BODY = packed("tiny")
SHA = hashlib.sha256(BODY).hexdigest()
PIN = BaseWheel(base="tiny", python="cp311", file=FILE, sha256=SHA)


@pytest.fixture
def index() -> Iterator[Index]:
    with Index() as server:
        server.has("tiny", FILE, BODY)
        yield server
        server.shutdown()


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_settings(monkeypatch, tmp_path)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setattr(fetch, "_TRIES", 1)
    configured(tmp_path, "")


def configured(tmp_path: Path, text: str) -> None:
    (tmp_path / "pip.conf").write_text(f"[global]\n{text}")


def files(index: Index) -> list[tuple[str, bool]]:
    """Of what was asked for that is a file: its path, and whether a login came along."""
    return [(path, login != "") for path, login in index.asked if FILE in path]


def test_a_private_authority_of_pips_is_trusted(index: Index, tmp_path: Path) -> None:
    """As of a company's proxy that opens TLS, on the way to a source, too."""
    cert = index.has_a_certificate(tmp_path)
    url = f"{index.address}/files/{FILE}"
    with pytest.raises(NotReached, match="CERTIFICATE_VERIFY_FAILED"):
        fetch.download(url, tmp_path / "x", SHA)
    configured(tmp_path, f"cert = {cert}\n")
    assert fetch.download(url, tmp_path / "x", SHA).read_bytes() == BODY


def test_what_this_machine_trusts_is_trusted(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """update-ca-certificates writes where OpenSSL looks, which this variable moves."""
    cert = index.has_a_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    url = f"{index.address}/files/{FILE}"
    assert fetch.download(url, tmp_path / "x", SHA).read_bytes() == BODY


def test_certificates_that_cannot_be_read_are_named(index: Index, tmp_path: Path) -> None:
    configured(tmp_path, "cert = /nowhere/ca.pem\n")
    with pytest.raises(ArtfError, match=r"/nowhere/ca\.pem") as refused:
        fetch.download(f"{index.address}/files/{FILE}", tmp_path / "x", SHA)
    assert "pip's settings" in refused.value.cure


def test_pips_proxy_is_asked_before_others(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    configured(tmp_path, f"proxy = {index.address}\n")
    fetch.download(f"http://sources.invalid/files/{FILE}", tmp_path / "x", SHA)
    assert index.paths() == [f"http://sources.invalid/files/{FILE}"]


@pytest.mark.parametrize("by", ["pip", "uv", "uv's name"])
def test_a_base_wheel_comes_with_the_indexs_login(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """pip tells where a wheel is without the login that it found it with, and fetches it then."""
    index.wants_login = True
    place = f"{index.with_login}/simple"
    if by == "pip":
        configured(tmp_path, f"index-url = {place}\n")
    else:
        configured(tmp_path, "index-url = http://127.0.0.1:9/simple\n")
        name = "UV_DEFAULT_INDEX" if by == "uv" else "UV_INDEX"
        monkeypatch.setenv(name, place if by == "uv" else f"ours={place}")
        monkeypatch.setenv("PIP_RETRIES", "0")
    assert fetch.wheel(PIN, "1").read_bytes() == BODY
    assert (f"/files/{FILE}", True) in files(index)
    index.asked.clear()
    assert fetch.wheel(PIN, "1").read_bytes() == BODY
    assert index.asked == []


def test_without_a_login_the_wheel_is_ours_to_resume(index: Index, tmp_path: Path) -> None:
    configured(tmp_path, f"index-url = {index.address}/simple\n")
    target = fetch.wheel(PIN, "1")
    assert target.read_bytes() == BODY
    # Once by pip, for what it depends on, once by ourselves; nothing else is left.
    assert [path for path, _ in files(index)] == [f"/files/{FILE}"] * 2
    assert list(target.parent.iterdir()) == [target]


def test_another_wheel_that_pip_brings_is_refused(index: Index, tmp_path: Path) -> None:
    index.wants_login = True
    index.has("tiny", FILE, BODY[:-1] + b"x")
    configured(tmp_path, f"index-url = {index.with_login}/simple\n")
    with pytest.raises(ArtfError, match=SHA):
        fetch.wheel(PIN, "1")
    assert not list((tmp_path / "cache/downloads").rglob("*.whl"))
