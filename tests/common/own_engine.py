"""A Docker engine of the tests' own: own data, own socket, own network namespace.

What containers send to each other stays in that namespace, which has no way out. Builds get
packages through a proxy that listens inside it and connects from outside.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
from filelock import FileLock, Timeout

from artf_cli import fetch
from artf_cli.paths import REPO

NEEDED = ("dockerd", "docker-compose", "iptables", "ip", "mmdebstrap", "nsenter", "unshare")
_PACKAGES = "docker.io docker-compose iptables iproute2 mmdebstrap"
# Debian's own client builds with BuildKit without a plugin; another may stand before it on PATH.
_CLIENT = "/usr/bin/docker"
BASES = {
    "debian:bookworm": "bookworm",
    "debian:bookworm-slim": "bookworm",
    "debian:bullseye-slim": "bullseye",
    "debian:trixie": "trixie",
    "debian:unstable": "sid",
}
# What the slim ones leave out.
_SLIM = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")
_START_S = 60.0
_STOP_S = 60.0
_BLOCK = 1 << 16
_PREFIX = "engine-"
#: A line of the pip.conf that builds get as a secret.
SECRET = f"ar-grpc-secret-{secrets.token_hex(8)}"
_LEASH = REPO / "scripts" / "artf_cli" / "runtime" / "leash.py"


def refuse(reason: str) -> NoReturn:
    """Skips a test for want of an engine; in CI it fails, unless ARTF_NO_ENGINE says why."""
    told = os.environ.get("ARTF_NO_ENGINE")
    if os.environ.get("CI") == "true" and not told:
        pytest.fail(f"{reason}; if this machine is to have no engine, say why in ARTF_NO_ENGINE")
    pytest.skip(reason)


def why_not() -> str:
    """Why no engine can be started here; empty when one can."""
    told = os.environ.get("ARTF_NO_ENGINE")
    if told:
        return f"this machine has no engine: {told}"
    if os.geteuid() != 0:
        return "only root can start a Docker engine"
    absent = [name for name in (*NEEDED, _CLIENT) if shutil.which(name) is None]
    if absent:
        return f"no {', '.join(absent)} (Debian's {_PACKAGES})"
    return ""


def _mirror() -> str:
    """The Debian archive to make bases from; empty for the one that mmdebstrap chooses."""
    named = os.environ.get("ARTF_APT_MIRROR", "").rstrip("/")
    if named:
        # It stands for the host alone, see docs/containers.md.
        return named if named.endswith("/debian") else f"{named}/debian"
    try:
        own = fetch.debian_mirror()
    except fetch.NotReached:
        return ""
    # A bare Debian has no certificates to check https by. For the public archive mmdebstrap's own
    # choice is better: security updates come with it.
    return own if own.startswith("http://") and "//deb.debian.org/" not in own else ""


def _apt_options() -> list[str]:
    """That a mirror may lag behind, where this machine's own apt says so."""
    command = ["apt-config", "dump", "Acquire::Check-Valid-Until"]
    said = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return [f"--aptopt={said.rstrip(';')}"] if said else []


def _setns(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _listen_in(namespace: int) -> socket.socket:
    """A socket that listens on the loopback of another network namespace."""
    made: list[socket.socket] = []
    failed: list[OSError] = []

    def enter() -> None:
        # A namespace is a thread's own: this one ends with the thread.
        try:
            _setns(namespace)
            made.append(socket.create_server(("127.0.0.1", 0)))
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


class _Proxy:
    """An HTTP proxy (CONNECT, and GET of absolute addresses) on a socket that listens already."""

    def __init__(self, listening: socket.socket) -> None:
        self.address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._wait(asyncio.start_server(self._serve, sock=listening))

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, ValueError, asyncio.IncompleteReadError):
                await self._forward(reader, writer)
        finally:
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, _, rest = head.partition(b"\r\n")
        method, address, version = first.split(b" ")
        if method == b"CONNECT":
            host, _, port = address.decode().rpartition(":")
            there, to = await asyncio.open_connection(host, int(port))
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            place, _, path = address.decode().partition("://")[2].partition("/")
            host, _, port = place.partition(":")
            there, to = await asyncio.open_connection(host, int(port or 80))
            # One request a connection: the next may be for another host.
            lines = [line for line in rest.split(b"\r\n") if b"onnection:" not in line[:20]]
            to.write(b"%s /%s %s\r\nConnection: close\r\n" % (method, path.encode(), version))
            to.write(b"\r\n".join(lines))
        await asyncio.gather(self._copy(reader, to), self._copy(there, writer))

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while block := await source.read(_BLOCK):
                sink.write(block)
                await sink.drain()
        with suppress(OSError):
            sink.write_eof()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)


class Machine:
    """A container that stands for a machine; a context manager that removes it."""

    def __init__(self, engine: OwnEngine, container: str) -> None:
        self._engine = engine
        self._container = container

    def run(
        self,
        command: str,
        user: str = "root",
        folder: str = "/",
        check: bool = True,
        seconds: int = 600,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a line of shell as `user`; raises RuntimeError with what it said if it must pass.

        After `seconds` it is ended, with status 124.
        """
        words = [
            "exec",
            "--user",
            user,
            "--workdir",
            folder,
            "--env",
            "DEBIAN_FRONTEND=noninteractive",
        ]
        done = self._engine.docker(
            *words, self._container, "timeout", str(seconds), "bash", "-lc", command, check=False
        )
        if check and done.returncode != 0:
            raise RuntimeError(
                f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"[-4000:]
            )
        return done

    def copy_in(self, source: Path, target: str) -> None:
        self._engine.docker("cp", str(source), f"{self._container}:{target}")

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.docker("rm", "--force", "--volumes", self._container, check=False)


class OwnEngine:
    """A running engine; `env` is what a command needs to find it and to build with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "dockerd.log"
        self.env: dict[str, str] = {}
        self._lock = FileLock(f"{folder}.lock")
        self._proxy: _Proxy | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def new(cls, parent: Path) -> OwnEngine:
        """One in a new folder of `parent`; those there whose tests were killed are removed."""
        for path in parent.glob(f"{_PREFIX}*"):
            if path.is_dir():
                rest = cls(path)
                with suppress(Timeout):
                    rest._lock.acquire(timeout=0)
                    rest.close()
        return cls(Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent)))

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> OwnEngine:
        """Starts the engine; raises RuntimeError with the end of its log when it does not come.

        Whatever is raised, nothing of the engine is left.
        """
        try:
            self._start()
        except (OSError, subprocess.CalledProcessError) as error:
            raise self._failed(str(error)) from error
        except BaseException:
            self.close()
            raise
        return self

    def _failed(self, what: str) -> RuntimeError:
        """The error that says `what` and the end of the log; removes the engine, and the log."""
        said = ""
        with suppress(OSError):
            said = self.log.read_text(errors="replace").strip()[-2000:]
        self.close()
        return RuntimeError(f"{what}: {said or 'its log is empty'}")

    def _start(self) -> None:
        self._lock.acquire(timeout=0)
        socket_path = self.folder / "docker.sock"
        # It dies with this process, and its mounts with it and its containers.
        command = [sys.executable, "-I", "-S", str(_LEASH), str(os.getpid())]
        command += [shutil.which("unshare") or "unshare", "--net", "--mount", "--propagation"]
        command += ["private", "--", "dockerd", "--data-root", str(self.folder / "data")]
        command += ["--exec-root", str(self.folder / "exec"), "--host", f"unix://{socket_path}"]
        command += ["--pidfile", str(self.folder / "docker.pid"), "--bridge", "none"]
        # Where the system's containerd runs, dockerd takes that one: not under its names there.
        name = f"artf{secrets.token_hex(4)}"
        command += ["--containerd-namespace", name, "--containerd-plugins-namespace", f"{name}p"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        path = os.pathsep.join((str(Path(_CLIENT).parent), os.environ.get("PATH", "")))
        self.env = {"DOCKER_HOST": f"unix://{socket_path}", "PATH": path}
        limit = time.monotonic() + _START_S
        while self.docker("version", check=False).returncode != 0:
            if self._process.poll() is not None or time.monotonic() > limit:
                raise OSError("dockerd does not answer")
            time.sleep(0.2)
        enter = ["nsenter", f"--net=/proc/{self.pid}/ns/net"]
        subprocess.run([*enter, "ip", "link", "set", "lo", "up"], check=True)
        namespace = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY)
        try:
            self._proxy = _Proxy(_listen_in(namespace))
        finally:
            os.close(namespace)
        self.env["ARTF_BUILD_PROXY"] = self._proxy.address
        self.env["ARTF_BUILD_NETWORK"] = "host"
        for name in ("PIP_CERT", "SSL_CERT_FILE"):
            if os.environ.get(name):
                self.env["ARTF_CA"] = os.environ[name]

    def docker(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs Docker's client against this engine."""
        return subprocess.run(
            [_CLIENT, *words],
            env={**os.environ, **self.env, "DOCKER_BUILDKIT": "1"},
            capture_output=True,
            text=True,
            check=check,
        )

    def load_base(self, image: str) -> None:
        """Makes a Debian by mmdebstrap and loads it under its public name.

        Raises RuntimeError with the last thing that mmdebstrap said when it fails.
        """
        if self.docker("image", "inspect", image, check=False).returncode == 0:
            return
        archive = self.folder / "base.tar"
        make = ["mmdebstrap", "--quiet", "--variant=minbase", *_apt_options()]
        if image.endswith("-slim"):
            make += [f"--dpkgopt=path-exclude={path}" for path in _SLIM]
        make += [BASES[image], str(archive)]
        mirror = _mirror()
        done = subprocess.run(
            [*make, *([mirror] if mirror else [])], capture_output=True, text=True, errors="replace"
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"mmdebstrap made no {image}: {last}")
        self.docker("import", "--change", 'CMD ["bash"]', str(archive), image)
        archive.unlink()

    def run_online(self, image: str, *words: str | Path) -> Machine:
        """A container that does nothing yet and reaches packages, as a machine to work on."""
        settings = ["run", "--detach", "--init", "--network", "host"]
        # gRPC would send even loopback connections to a proxy.
        settings += ["--env", "no_proxy=127.0.0.1,localhost"]
        for name in ("http_proxy", "https_proxy"):
            settings += ["--env", f"{name}={self.env['ARTF_BUILD_PROXY']}"]
        if "ARTF_CA" in self.env:
            settings += ["--volume", f"{self.env['ARTF_CA']}:/etc/site-ca.pem:ro"]
            for name in ("PIP_CERT", "REQUESTS_CA_BUNDLE"):
                settings += ["--env", f"{name}=/etc/site-ca.pem"]
        settings += [str(word) for word in words]
        return Machine(self, self.docker(*settings, image, "sleep", "infinity").stdout.strip())

    def close(self) -> None:
        """Stops the engine and removes all that it kept."""
        if self._proxy is not None:
            self._proxy.close()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        limit = time.monotonic() + _STOP_S
        while (rest := self.processes()) and time.monotonic() < limit:
            for number in rest:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(0.1)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.release()
        Path(self._lock.lock_file).unlink(missing_ok=True)

    def processes(self) -> dict[int, str]:
        """The engine's processes, which name its folder, and its containers'; pid → what it is."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                roots = [
                    mount
                    for mount in (path / "mountinfo").read_text().splitlines()
                    if mount.split(" ")[4] == "/"
                ]
                inside = any(f"upperdir={self.folder}/" in root for root in roots)
                if int(path.name) != os.getpid() and (str(self.folder) in line or inside):
                    found[int(path.name)] = line
        return found

    def mounts(self) -> list[str]:
        """This machine's mounts below the engine's folder, of which there are none."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        found = [line.split(" ")[4] for line in lines]
        return [name for name in found if name.startswith(f"{self.folder}/")]
