"""Brings pinned archives and wheels into the cache: resumable, shown, verified.

A download goes to `NAME.part` and continues where an interrupted one stopped (HTTP ranges,
RFC 9110 section 14); it gets its name only after its sha256 was right.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import requests
from filelock import FileLock
from requests.adapters import HTTPAdapter
from urllib3.exceptions import InvalidHeader
from urllib3.util import Retry

from artf_cli import package_index
from artf_cli.console import download_progress, err, note
from artf_cli.errors import ArtfError
from artf_cli.paths import cache_dir
from artf_cli.pins import BaseWheel, Bazelisk, DebianArchive, Source, verify

_TIMEOUT_S = (10, 60)
_TRIES = 4
# A server that asks for a longer pause counts as out of reach; another place may have the file.
_LONGEST_PAUSE_S = 30.0
_TOO_MANY_REQUESTS = 429
_DEBIAN_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


#: pip's variable → those of uv that go before it.
_UVS_INDEXES = {
    "PIP_INDEX_URL": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    "PIP_EXTRA_INDEX_URL": ("UV_INDEX", "UV_EXTRA_INDEX_URL"),
}


class NotReached(Exception):
    """This place has no such file or cannot be reached; another place may."""


class _Trusting(HTTPAdapter):
    """Trusts whom pip is told to trust, else whom this machine trusts, beside requests' own list
    (certifi's, or REQUESTS_CA_BUNDLE)."""

    def __init__(self, by: dict[str, str]) -> None:
        self._context = package_index.certificates(by)
        super().__init__()

    def init_poolmanager(self, *words: Any, **named: Any) -> None:
        super().init_poolmanager(*words, **named, ssl_context=self._context)

    def proxy_manager_for(self, proxy: str, **named: Any) -> Any:
        return super().proxy_manager_for(proxy, **named, ssl_context=self._context)


def _get(session: requests.Session, url: str, headers: dict[str, str]) -> requests.Response:
    """Asks by pip's proxy, where it has one, and by its certificates."""
    try:
        by = package_index.settings()
        session.mount("https://", _Trusting(by))
    except package_index.FetchError as error:
        raise ArtfError(error.what, error.cure) from None
    # For pip it goes before the variables that are not its own.
    proxy = by.get(package_index.PROXY)
    proxies = {"http": proxy, "https": proxy} if proxy else None
    return session.get(url, stream=True, timeout=_TIMEOUT_S, headers=headers, proxies=proxies)


def _cached(sha256: str, name: str) -> Path:
    folder = cache_dir() / "downloads" / sha256[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtfError(f"cannot write {folder}: {error}", "set ARTF_CACHE elsewhere") from None
    return folder / name


def _stream(url: str, part: Path, label: str) -> None:
    """Appends what is missing of `url` to `part`."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={have}-"} if have else {}
    with requests.Session() as session, _get(session, url, headers) as reply:
        if reply.status_code == 416:
            return
        reply.raise_for_status()
        if reply.status_code != 206:
            have = 0
        total = have + int(reply.headers.get("Content-Length", 0)) or None
        last = time.monotonic()
        with part.open("ab" if have else "wb") as sink, download_progress() as progress:
            task = progress.add_task(label, total=total, completed=have)
            for block in reply.iter_content(1 << 18):
                sink.write(block)
                progress.advance(task, len(block))
                if not err.is_terminal and time.monotonic() - last > 10:
                    last = time.monotonic()
                    note(f"{label}: {sink.tell() >> 20} MiB of {(total or 0) >> 20}")
        if total and part.stat().st_size < total:
            raise requests.ConnectionError("the connection closed early")


def _first(error: BaseException) -> BaseException:
    """The error that the others were raised from."""
    while cause := error.__cause__ or error.__context__:
        error = cause
    return error


def _said(error: requests.RequestException) -> str:
    """In one line the server's answer, or what the socket said below all that wraps it."""
    if isinstance(error, requests.HTTPError):
        return f"{error.response.status_code} {error.response.reason}"
    first = _first(error)
    text = (first.strerror if isinstance(first, OSError) else None) or str(first)
    return f"{type(error).__name__}: {' '.join(text.split())}"


def _pause(error: requests.RequestException, attempt: int) -> float | None:
    """Seconds until another try is worth it (RFC 9110 section 10.2.3); None when none is."""
    if not isinstance(error, requests.HTTPError):
        # Neither a name nor a certificate will be another one a second later.
        lasting = (socket.gaierror, ssl.SSLCertVerificationError)
        return None if isinstance(_first(error), lasting) else attempt
    status = error.response.status_code
    if status < 500 and status != _TOO_MANY_REQUESTS:
        return None
    try:
        asked = Retry().get_retry_after(error.response.raw) or 0
    except InvalidHeader:
        asked = 0
    return max(asked, attempt) if asked <= _LONGEST_PAUSE_S else None


def download(url: str, target: Path, sha256: str) -> Path:
    """Downloads `url` to `target`; raises NotReached, or ArtfError when the bytes are wrong."""
    part = target.with_name(target.name + ".part")
    if urlsplit(url).scheme == "file":
        shutil.copyfile(unquote(urlsplit(url).path), part)
    else:
        for attempt in range(1, _TRIES + 1):
            try:
                _stream(url, part, target.name)
                break
            except requests.RequestException as error:
                said, pause = _said(error), _pause(error, attempt)
                if attempt == _TRIES or pause is None:
                    raise NotReached(f"{url}: {said}") from None
                note(f"{target.name}: {said}; trying again in {pause:.0f} s")
                time.sleep(pause)
            except OSError as error:
                raise ArtfError(
                    f"cannot write {part}: {error.strerror}",
                    "make room, or set ARTF_CACHE elsewhere",
                ) from None
    try:
        verify(part, sha256, "it was deleted; run again, or check what serves this address: " + url)
    except ArtfError:
        part.unlink()
        raise
    return part.replace(target)


def _have(target: Path, sha256: str) -> bool:
    if not target.exists():
        return False
    verify(target, sha256, f"delete {target} and run again")
    return True


def _apt(arguments: list[str], folder: Path) -> str:
    command = ["apt-get", "-c", str(folder / "apt.conf"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0 and not done.stdout:
        raise NotReached(f"apt-get {arguments[0]}: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


def debian_mirror() -> str:
    """This machine's own Debian mirror, as apt knows it; raises NotReached when it has none."""
    if shutil.which("apt-get") is None:
        raise NotReached("no apt-get on this machine")
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)"]
    done = subprocess.run(command, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        uri, release = line.split(" ", 1)
        if uri.rstrip("/").endswith("/debian") and "security" not in release:
            return uri
    raise NotReached("apt knows no Debian archive")


def _from_debian(pin: DebianArchive, target: Path) -> Path:
    """Finds the archive through a private apt source list, without touching the machine's own."""
    mirror = debian_mirror()
    folder = cache_dir() / "apt" / pin.suite
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "sources.list").write_text(
        f"deb-src [signed-by={_DEBIAN_KEYRING}] {mirror} {pin.suite} main\n"
    )
    (folder / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{folder}/sources.list";\nDir::Etc::sourceparts "-";\n'
        f'Dir::State::lists "{folder}/lists";\nDir::Cache "{folder}/cache";\n'
        'APT::Sandbox::User "";\nDebug::NoLocking "1";\n'
        # A mirror may lag behind, and it is the archive's own sha256 that counts.
        'Acquire::Check-Valid-Until "false";\n'
    )
    _apt(["update", "-qq"], folder)
    listing = _apt(["source", "--print-uris", f"{pin.package}/{pin.suite}"], folder)
    for line in listing.splitlines():
        found = re.match(r"'([^']+)' (\S+) ", line)
        if found and found.group(2) == pin.file:
            return download(found.group(1), target, pin.sha256)
    raise NotReached(f"Debian {pin.suite} has no {pin.file} now")


def source(name: str, pin: Source) -> Path:
    """The pinned archive of a source: the cache's, upstream's, or Debian's, in this order."""
    upstream = _cached(pin.upstream.sha256, f"{name}-{pin.version}.tar.gz")
    debian = _cached(pin.debian.sha256, pin.debian.file)
    with FileLock(f"{upstream.parent}.lock"):
        for target, sha256 in ((upstream, pin.upstream.sha256), (debian, pin.debian.sha256)):
            if _have(target, sha256):
                return target
        try:
            return download(pin.upstream.url, upstream, pin.upstream.sha256)
        except NotReached as error:
            first = str(error)
        note(f"{name}: upstream's archive is out of reach ({first}); asking Debian")
        try:
            return _from_debian(pin.debian, debian)
        except NotReached as error:
            raise ArtfError(
                f"no place has the {name} {pin.version} source: {first}; {error}",
                f"check the network, or put the archive at {upstream}",
            ) from None


def bazelisk(pin: Bazelisk) -> Path:
    """The pinned bazelisk, ready to run; raises NotReached where its place is out of reach."""
    target = _cached(pin.sha256, "bazelisk")
    with FileLock(f"{target.parent}.lock"):
        if not _have(target, pin.sha256):
            download(pin.url, target, pin.sha256)
        target.chmod(0o755)
    return target


def _pip(words: list[str], pin: BaseWheel, version: str, cure: str) -> None:
    """Runs pip on a base wheel; raises ArtfError with its last line."""
    env = dict(os.environ)
    for name, uvs in _UVS_INDEXES.items():
        told = next((env[each] for each in uvs if env.get(each)), "")
        if told:
            # uv may be told NAME=URL.
            env[name] = re.sub(r"(^|\s)[\w-]+=", r"\1", told)
    digits = pin.python[2:]
    command = [sys.executable, "-m", "pip", *words, "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--platform", "manylinux2014_x86_64"]
    command += ["--python-version", f"{digits[0]}.{digits[1:]}", "--implementation", "cp"]
    command += [f"{pin.base}=={version}"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise ArtfError(f"pip found no {pin.base} {version} ({pin.python}): {last[0]}", cure)


def wheel(pin: BaseWheel, version: str) -> Path:
    """The pinned base wheel from the package index that this machine's pip is set up for."""
    target = _cached(pin.sha256, pin.file)
    cure = f"check the network and pip's configuration, or put the wheel at {target}"
    with FileLock(f"{target.parent}.lock"):
        if _have(target, pin.sha256):
            return target
        report = target.with_name("report.json")
        words = ["install", "--dry-run", "--ignore-installed", "--report", str(report)]
        _pip([*words, "--target", str(target.parent / "x")], pin, version, cure)
        url = json.loads(report.read_text())["install"][0]["download_info"]["url"]
        report.unlink()
        try:
            return download(url, target, pin.sha256)
        except NotReached as error:
            note(f"{error}; pip fetches it, which has logins and may trust that place")
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            _pip(["download", "--dest", folder], pin, version, cure)
            found = next(Path(folder).iterdir())
            verify(found, pin.sha256, f"it was deleted; check what pip's index has of {pin.base}")
            return found.replace(target)
