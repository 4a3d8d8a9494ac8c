"""Builds the images: the wheel by docker/build.Dockerfile, the rest by docker/runtime.Dockerfile.

What a site needs comes from the environment and stays out of the images: `ARTF_BUILD_PROXY` (else
`http_proxy` and its kin), `ARTF_CA` and `ARTF_PIP_CONF` (files, mounted as secrets),
`ARTF_BUILD_NETWORK` (the network that builds run in). `ARTF_APT_MIRROR` and `PIP_INDEX_URL` are
build arguments: no file has them, but an image's history does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.markup import escape

from artf_cli import build, pins
from artf_cli.console import note, stage
from artf_cli.containers import bases
from artf_cli.containers.engine import PODMAN, Engine, explain, make_room
from artf_cli.errors import ArtfError
from artf_cli.paths import REPO, cache_dir
from artf_cli.supervise import Group, log_folder

DOCKERFILES = REPO / "docker"
# The Python of docker/runtime.Dockerfile's base.
IMAGE_PYTHON = "cp311"
RUNTIME, QUICKSTART = "runtime", "quickstart"
# Images, layers of builds, Bazel's output in the build cache; and what changes of it in a rebuild.
DISK_NEEDED = 12 << 30
DISK_NEEDED_AGAIN = 4 << 30
_MIRRORS = {"APT_MIRROR": "ARTF_APT_MIRROR", "PIP_INDEX_URL": "PIP_INDEX_URL"}
_PROXIES = ("http_proxy", "https_proxy", "no_proxy")
_LINE_EVERY_S = 5.0
_STEP = re.compile(r"^(#\d+ \[.*|STEP \d+/\d+.*|#\d+ [\d.]+ artf: .*|artf: .*|\[\d/\d\] STEP.*)$")


@dataclass(frozen=True)
class Image:
    """An image that was built: its name, and its size in bytes."""

    name: str
    bytes: int


def _site_words() -> list[str]:
    """The words of a build command that follow from this machine's environment."""
    words = []
    for argument, variable in _MIRRORS.items():
        if os.environ.get(variable):
            words += ["--build-arg", f"{argument}={os.environ[variable]}"]
    for name in _PROXIES:
        value = os.environ.get(name) or os.environ.get(name.upper())
        if name != "no_proxy":
            # One on this machine's loopback may have another address in a build.
            value = os.environ.get("ARTF_BUILD_PROXY") or value
        if value:
            words += ["--build-arg", f"{name}={value}", "--build-arg", f"{name.upper()}={value}"]
    for secret, variable in (("ca", "ARTF_CA"), ("pip", "ARTF_PIP_CONF")):
        named = os.environ.get(variable)
        if named:
            path = Path(named).expanduser()
            if not path.is_file():
                raise ArtfError(f"{variable}={named} is no file", "name another or unset it")
            words += ["--secret", f"id={secret},src={path.resolve()}"]
    if os.environ.get("ARTF_BUILD_NETWORK"):
        words.append(f"--network={os.environ['ARTF_BUILD_NETWORK']}")
    return words


def _check_disk(engine: Engine) -> None:
    root = engine.root()
    needed = DISK_NEEDED_AGAIN if engine.has_build_cache() else DISK_NEEDED
    free = shutil.disk_usage(root).free if root else needed
    if free < needed:
        raise ArtfError(
            f"{root} has {free >> 20} MiB free, images and their build cache need "
            f"{needed >> 20} MiB",
            make_room(engine.kind),
        )


def _build(
    engine: Engine, file: str, target: str, arguments: Mapping[str, str], words: Sequence[str]
) -> None:
    """Builds `target` of a Dockerfile, with its steps as progress; raises ArtfError."""
    command: list[str | Path] = [engine.path, "build", "--file", DOCKERFILES / file]
    command += ["--target", target, *_site_words(), *words]
    if engine.kind == PODMAN:
        # The image format that knows health checks.
        command += ["--format", "docker", "--layers"]
    else:
        command += ["--progress", "plain"]
    for name, value in arguments.items():
        command += ["--build-arg", f"{name}={value}"]
    with log_folder("images") as logs, Group(logs, grace_s=20) as group:
        child = group.start(
            f"{engine.kind}-build", [*command, REPO], env=engine.environment(), cwd=REPO
        )
        with (
            child.stderr.open(errors="replace") as first,
            child.stdout.open(errors="replace") as second,
        ):
            status: int | None = None
            last = 0.0
            while status is None:
                status = child.status()
                steps = [line for stream in (first, second) for line in stream if _STEP.match(line)]
                now = time.monotonic()
                if steps and now - last > _LINE_EVERY_S:
                    last = now
                    note(escape(steps[-1].strip()[:160]))
                time.sleep(0.2)
        if status != 0:
            streams = (child.stdout, child.stderr)
            said = "".join(stream.read_text(errors="replace") for stream in streams)
            raise explain(said, engine.kind, f"building {target} failed", child.stderr)


def _revision() -> str:
    """The commit of this tree, with a mark when files differ from it; empty outside git."""
    command = ["git", "-C", str(REPO), "describe", "--always", "--abbrev=40", "--dirty"]
    with suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return ""


def build_wheel(engine: Engine, base: str, python: str, seconds: dict[str, float]) -> Path:
    """Builds the wheel in a container and puts it into `dist/`; as `artf_cli.build.build`."""
    pins.load().wheel(base, python)
    _check_disk(engine)
    with stage("base images", seconds):
        arguments = bases.resolve(engine, ("BASE", "SYSROOT_BASE"))
    arguments.update(WHEEL_BASE=base, WHEEL_PYTHON=python)
    with tempfile.TemporaryDirectory(prefix="wheel-", dir=cache_dir()) as folder:
        with stage("build the wheel in a container", seconds):
            output = ["--output", f"type=local,dest={folder}"]
            _build(engine, "build.Dockerfile", "wheel", arguments, output)
        found = list(Path(folder).glob("*.whl"))
        if len(found) != 1:
            raise ArtfError(
                f"the container handed out {len(found)} wheels", "remove its build cache"
            )
        return build.publish(found[0])


def build_runtime(engine: Engine, wheel: Path, seconds: dict[str, float]) -> list[Image]:
    """Builds the runtime image and the quickstart's image with `wheel`, which lies in `dist/`."""
    python = wheel.name.split("-")[2]
    if python != IMAGE_PYTHON:
        raise ArtfError(
            f"{wheel.name} is for {python}, the image has Python {IMAGE_PYTHON}",
            f"build it with --python {IMAGE_PYTHON}",
        )
    arguments = bases.resolve(engine, ("BASE",))
    version = pins.load().version
    arguments.update(
        WHEEL=str(wheel.relative_to(REPO)),
        VERSION=version,
        REVISION=_revision(),
        BASE_DIGEST=arguments["BASE"].partition("@")[2],
    )
    images = []
    for target in (RUNTIME, QUICKSTART):
        name = image_name(target, version)
        # And the name without a version, which docker/compose.yaml has.
        tags = ["--tag", name, "--tag", image_name(target, "latest")]
        with stage(f"image {name}", seconds):
            _build(engine, "runtime.Dockerfile", target, arguments, tags)
        found = engine.inspect(name)
        if found is None:
            raise ArtfError(f"{engine.kind} has no {name} after building it", "run it again")
        images.append(Image(name, int(found["Size"])))
    return images


def image_name(target: str, version: str) -> str:
    """The name of a target's image; a tag may not have the `+` of a version."""
    suffix = "" if target == RUNTIME else f"-{target}"
    return f"ar-tensorflow{suffix}:{version.replace('+', '-')}"
