"""The container engine of this machine: Docker with BuildKit, or podman."""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artf_cli.errors import ArtfError
from artf_cli.supervise import last_lines

DOCKER, PODMAN = "docker", "podman"
_PROBE_S = 60.0
# From this version on, Docker's client builds through its plugin buildx.
_NEEDS_BUILDX = 23
_INSTALL = "on Debian as root run: apt-get install -y docker.io docker-compose"
_COMPOSE = {
    DOCKER: "on Debian as root run: apt-get install -y docker-compose",
    PODMAN: "install podman-compose 1.1 or newer (pip install podman-compose; Debian 12's is 1.0)",
}
# What engines say → what to do.
_KNOWN: tuple[tuple[str, str], ...] = (
    (
        r"permission denied .*(docker|podman)",
        "as root run: usermod -aG docker {user} (then log in again), or use podman",
    ),
    (
        r"cannot connect to the docker daemon|is the docker daemon running"
        # Not a registry's, a mirror's or a proxy's.
        r"|(docker(?!\.io|\.com)|podman|\.sock\b).*connection refused",
        "start it (as root: systemctl start docker), or let DOCKER_HOST name one that runs",
    ),
    (r"no space left on device", "{room}"),
    (
        r"pull access denied|error pulling|failed to do request|no such host|dial tcp|lookup .* on",
        "check the network and the proxy of the engine, or load the image under this name",
    ),
    (
        r"cannot connect to proxy|response from proxy|tunnel connection failed"
        r"|no place has .*proxyerror|could not connect to .*connection refused",
        "let ARTF_BUILD_PROXY name a proxy that builds reach; one on this machine's loopback needs "
        "ARTF_BUILD_NETWORK=host",
    ),
)


def make_room(engine: str) -> str:
    """The cure for a disk that the images of an engine fill."""
    prune = "podman image prune" if engine == PODMAN else "docker builder prune"
    return (
        f"make room: `{engine} system df` says what its images hold, `{prune}` removes what builds "
        "left"
    )


def explain(said: str, engine: str, what: str, log: Path | None = None) -> ArtfError:
    """The error for what an engine's command said on standard error, with the cure if known."""
    lines = [line for line in said.splitlines() if line.strip()]
    for pattern, cure in _KNOWN:
        for line in lines:
            if re.search(pattern, line, re.IGNORECASE):
                filled = cure.format(user=getpass.getuser(), room=make_room(engine))
                return ArtfError(f"{what}: {line.strip()[:300]}", filled)
    ours = [line.split("artf: ", 1)[1] for line in lines if "artf: " in line and "; " in line]
    errors = [line.strip()[:300] for line in lines if re.match(r"\s*error\b", line, re.IGNORECASE)]
    text = (ours[-1:] or errors[:1] or [last_lines(said, most=1) or "no message"])[0]
    cure = f"read its log {log}" if log else f"see what `{engine} info` and `{engine} ps -a` say"
    return ArtfError(f"{what}: {text}", cure)


@dataclass(frozen=True)
class Engine:
    """An engine that answers; `compose` are the words that run a compose file, if there is one."""

    kind: str
    path: Path
    version: str
    compose: tuple[str, ...]

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of its commands: this process's, with BuildKit on."""
        return {**os.environ, "DOCKER_BUILDKIT": "1", **(extra or {})}

    def ask(self, *words: str, seconds: float | None = _PROBE_S) -> str:
        """What a command prints; raises ArtfError with what it says when it fails.

        It fails after `seconds`, too; None waits as long as it takes.
        """
        done = _run([str(self.path), *words], seconds)
        if done is None or done.returncode != 0:
            limit = f" within {seconds:.0f} s" if seconds else ""
            said = done.stderr if done else f"no answer{limit}"
            raise explain(said, self.kind, f"{self.kind} {words[0]} failed")
        return done.stdout

    def inspect(self, name: str) -> dict[str, Any] | None:
        """What the engine knows of an image or a container; None when it has none."""
        done = _run([str(self.path), "inspect", name])
        if done is None or done.returncode != 0:
            return None
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found[0] if found else None

    def need_compose(self) -> tuple[str, ...]:
        """The words that run a compose file, or an ArtfError that says what to install."""
        if not self.compose:
            raise ArtfError(f"{self.kind} has no compose here", _COMPOSE[self.kind])
        return self.compose

    def has_build_cache(self) -> bool:
        """Whether Docker keeps something of earlier builds; podman does not say."""
        if self.kind != DOCKER:
            return False
        lines = self.ask("system", "df", "--format", "{{.Type}}:{{.Size}}").splitlines()
        return any(re.match(r"Build Cache:(?!0B)", line) for line in lines)

    def root(self) -> Path | None:
        """Where the engine keeps its images, when that is on this machine."""
        field = "{{.DockerRootDir}}" if self.kind == DOCKER else "{{.Store.GraphRoot}}"
        path = Path(self.ask("info", "--format", field).strip())
        return path if path.is_dir() else None


def _run(
    command: Sequence[str], seconds: float | None = _PROBE_S
) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _on_path(name: str) -> Iterator[Path]:
    seen: set[Path] = set()
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found = shutil.which(name, path=folder) if folder else None
        if found and Path(found).resolve() not in seen:
            seen.add(Path(found).resolve())
            yield Path(found)


def _compose(kind: str, path: Path) -> tuple[str, ...]:
    if kind == DOCKER:
        done = _run([str(path), "compose", "version"])
        if done is not None and done.returncode == 0:
            return (str(path), "compose")
    for found in _on_path(f"{kind}-compose"):
        done = _run([str(found), "version"])
        if done is None or done.returncode != 0:
            continue
        # podman-compose 1.0, which names itself otherwise, starts no service by name.
        if kind == DOCKER or re.search(r"podman-compose version (1\.[1-9]|[2-9])", done.stdout):
            return (str(found),)
    return ()


def _examine(path: Path) -> Engine:
    """The engine behind a client; raises ArtfError when it cannot build for us now."""
    done = _run([str(path), "--version"])
    # podman may come under docker's name.
    found = re.search(r"(docker|podman) version (\d+)(\S*?),?\s", f"{done and done.stdout} ", re.I)
    if done is None or found is None:
        raise ArtfError(f"{path} is no docker or podman", _INSTALL)
    kind = found.group(1).lower()
    version = found.group(2) + found.group(3)
    if kind == DOCKER:
        if int(found.group(2)) >= _NEEDS_BUILDX:
            buildx = _run([str(path), "buildx", "version"])
            if buildx is None or buildx.returncode != 0:
                raise ArtfError(
                    f"{path} {version} builds with BuildKit only through buildx, which is missing",
                    "install Docker's package docker-buildx-plugin, or Debian's docker.io",
                )
        answer = _run([str(path), "version", "--format", "{{.Server.Version}}"])
    else:
        answer = _run([str(path), "info", "--format", "{{.Version.Version}}"])
    if answer is None or answer.returncode != 0:
        said = answer.stderr if answer else "no answer"
        raise explain(said, kind, f"the engine of {path} cannot be used")
    return Engine(kind, path, version, _compose(kind, path))


def find() -> Engine:
    """The engine to use: the one that `ARTF_ENGINE` names, else the first on PATH that answers.

    Raises ArtfError with the reason why the first one cannot be used, and the cure.
    """
    named = os.environ.get("ARTF_ENGINE")
    names = [named] if named else [DOCKER, PODMAN]
    first: ArtfError | None = None
    for name in names:
        paths = [Path(name)] if "/" in name else list(_on_path(name))
        for path in paths:
            try:
                return _examine(path)
            except ArtfError as error:
                # A client that only lacks its plugin says less than one whose engine is down.
                if first is None or "buildx" in first.what:
                    first = error
    raise first or ArtfError(f"there is no {' or '.join(names)} on PATH", _INSTALL)
