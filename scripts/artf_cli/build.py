"""The delta build: from `build/pins.toml` to a wheel in `dist/`."""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from artf_cli import bazel, fetch, interpreters, patches, pins, system
from artf_cli.console import stage
from artf_cli.errors import ArtfError
from artf_cli.paths import DIST, cache_dir

BASES = ("tensorflow-cpu", "tensorflow")
PYTHONS = ("cp39", "cp310", "cp311")
# The unpacked base wheel, the sources, the objects and two wheels.
DISK_NEEDED = 4 << 30


@dataclass(frozen=True)
class Built:
    """The wheel in `dist/`, and the wall seconds of each stage."""

    wheel: Path
    seconds: dict[str, float]

    @property
    def total_seconds(self) -> float:
        return round(sum(self.seconds.values()), 1)


def _check_disk() -> None:
    for path in (cache_dir(), DIST.parent):
        free = shutil.disk_usage(path).free
        if free < DISK_NEEDED:
            raise ArtfError(
                f"{path} has {free >> 20} MiB free, a build needs {DISK_NEEDED >> 20}",
                "make room, or set ARTF_CACHE elsewhere",
            )


def publish(wheel: Path) -> Path:
    """Copies the wheel into `dist/` in one step, in place of an older one for the same Python."""
    target = DIST / wheel.name
    stem = "-".join(wheel.name.split("-")[:3])
    if target.exists() and pins.sha256_of(target) == pins.sha256_of(wheel):
        return target
    partial = DIST / f".{wheel.name}.{os.getpid()}"
    try:
        DIST.mkdir(exist_ok=True)
        shutil.copyfile(wheel, partial)
        partial.replace(target)
    except OSError as error:
        raise ArtfError(f"cannot write {target}: {error.strerror}", "make room there") from None
    finally:
        partial.unlink(missing_ok=True)
    # Another platform tag is another name: `pip install dist/…-*.whl` must find one.
    for path in DIST.glob(f"{stem}-*.whl"):
        if path != target:
            path.unlink()
    return target


def _sweep() -> None:
    """Removes what a killed build left: a copy whose process is gone."""
    for path in DIST.glob(".*.whl.*"):
        pid = path.name.rpartition(".")[2]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            path.unlink(missing_ok=True)


def _compile(
    target: str, base: str, python: str, seconds: dict[str, float], config: str = ""
) -> Path:
    """Checks and fetches what a build needs and builds `target`; returns the folder bazel-bin."""
    manifest = pins.load()
    pin = manifest.wheel(base, python)
    _check_disk()
    # Before the downloads.
    bazel.local_settings()
    with stage("check the patches", seconds):
        patches.lint()
    with stage("build tools", seconds):
        system.ensure_build_tools()
        engine = bazel.ensure()
    with stage("fetch the sources and the base wheel", seconds):
        for name, source in manifest.trees.items():
            fetch.source(name, source)
        fetch.wheel(pin, manifest.sources["tensorflow"].version)
    with stage("compile, link and pack", seconds):
        settings = {"ARTF_BASE": base, "ARTF_WHEEL_PYTHON": python}
        return bazel.build(engine, target, settings, config)


def grpc_suites(base: str = "tensorflow-cpu", python: str | None = None) -> Path:
    """Builds gRPC's own tests on the library's objects; returns the folder of the programs."""
    return _compile("//build:grpc_suites", base, python or default_python(), {}) / "build"


def _wheel(out: Path) -> Path:
    """The one wheel in the folder bazel-bin."""
    found = list((out / "build" / "wheel").glob("*.whl"))
    if len(found) != 1:
        raise ArtfError(f"the build left {len(found)} wheels in {out}", "delete that folder")
    return found[0]


def sanitized(base: str = "tensorflow-cpu", python: str | None = None) -> Path:
    """Builds the wheel with sanitizers in our library; it stays where Bazel made it, not in dist/.

    What loads it needs `sanitizers.environment`.
    """
    out = _compile("//build:wheel", base, python or default_python(), {}, "sanitized")
    # The next build leads bazel-bin elsewhere.
    return _wheel(out).resolve()


def build(base: str = "tensorflow-cpu", python: str | None = None) -> Built:
    """Builds the wheel for `python` (such as `cp311`; by default `default_python`'s).

    Raises ArtfError when something is missing or wrong; `dist/` then is as it was.
    """
    seconds: dict[str, float] = {}
    _sweep()
    out = _compile("//build:wheel", base, python or default_python(), seconds)
    begin = time.monotonic()
    wheel = publish(_wheel(out))
    seconds["copy to dist"] = round(time.monotonic() - begin, 1)
    return Built(wheel, seconds)


def default_python() -> str:
    """The tag of this Python if there is a base wheel for it, else of the newest one here.

    Where there is none, the newest tag: a build needs no such Python, and what runs the wheel
    fetches one.
    """
    mine = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    if mine in PYTHONS:
        return mine
    return max(interpreters.here() or PYTHONS, key=lambda tag: int(tag[3:]))
