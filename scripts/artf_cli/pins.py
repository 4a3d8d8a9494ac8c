"""The manifest `build/pins.toml`: every source, base wheel, patch and overlay, with its sha256."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

from artf_cli import tables
from artf_cli.errors import ArtfError
from artf_cli.paths import PATCHES, PINS, REPO
from artf_cli.tables import Strict

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")]


class Archive(Strict):
    """A file at a URL."""

    url: Annotated[str, StringConstraints(pattern=r"^https://")]
    sha256: Sha256


class DebianArchive(Strict):
    """The upstream tarball inside a Debian source package of `suite`."""

    package: Name
    suite: Name
    file: Name
    sha256: Sha256


class Source(Strict):
    """One upstream tree: two places to get it, and which part the delta build unpacks."""

    version: Name
    upstream: Archive
    debian: DebianArchive
    delta_paths: tuple[str, ...] = Field(min_length=1)


class Bazelisk(Archive):
    """The program that fetches the Bazel of a version, and that version with its hash."""

    bazel: Name
    bazel_sha256: Sha256


class BaseWheel(Strict):
    """An upstream wheel that ours is made from."""

    base: Name
    python: Annotated[str, StringConstraints(pattern=r"^cp3[0-9]+$")]
    file: Name
    sha256: Sha256


class Overlay(Strict):
    """A file of ours laid over a pinned tree or into the wheel, at its key's path."""

    file: str
    sha256: Sha256


class Manifest(Strict):
    """The whole of `build/pins.toml`."""

    schema_version: int = Field(ge=1, le=1)
    local_version: Annotated[str, StringConstraints(pattern=r"^ar\.[0-9]+$")]
    sources: dict[Name, Source]
    tools: dict[Name, Source]
    bazelisk: Bazelisk
    wheels: tuple[BaseWheel, ...]
    patches: dict[Name, dict[Name, Sha256]]
    overlays: dict[Name, dict[str, Overlay]]

    @property
    def version(self) -> str:
        """The version of our wheel, such as `2.14.1+ar.1`."""
        return f"{self.sources['tensorflow'].version}+{self.local_version}"

    @property
    def trees(self) -> dict[str, Source]:
        """What a build unpacks: the sources of the wheel, and of the tools that it is made with."""
        return {**self.sources, **self.tools}

    def wheel(self, base: str, python: str) -> BaseWheel:
        """The pinned base wheel; an ArtfError lists what there is."""
        for wheel in self.wheels:
            if (wheel.base, wheel.python) == (base, python):
                return wheel
        known = ", ".join(f"{w.base}/{w.python}" for w in self.wheels)
        raise ArtfError(f"no base wheel {base}/{python} in {PINS.name}", f"choose one of {known}")


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def verify(path: Path, sha256: str, cure: str) -> None:
    """Raises an ArtfError naming the file and both hashes when they differ."""
    found = sha256_of(path)
    if found != sha256:
        raise ArtfError(f"{path} has sha256 {found}, {PINS.name} says {sha256}", cure)


def load(path: Path = PINS) -> Manifest:
    """Reads and validates the manifest; an ArtfError names the first wrong entry."""
    return tables.load(path, Manifest)


class _Pinned(BaseModel):
    """The part of a manifest that those of all revisions have."""

    sources: dict[Name, Source]


def sources_then(path: Path) -> dict[str, Source]:
    """The sources of another revision's manifest, which may lack what today's has."""
    return dict(tables.load(path, _Pinned).sources)


def verify_local(manifest: Manifest) -> None:
    """Checks the hash of every patch and overlay file of the repository."""
    cure = "restore the file with git, or record the change with: scripts/artf patches export"
    for tree, patches in manifest.patches.items():
        for name, sha256 in patches.items():
            path = PATCHES / tree / name
            if not path.exists():
                raise ArtfError(f"patch {path} is missing", cure)
            verify(path, sha256, cure)
    for overlays in manifest.overlays.values():
        for overlay in overlays.values():
            path = REPO / overlay.file
            if not path.exists():
                raise ArtfError(f"overlay {path} is missing", cure)
            verify(path, overlay.sha256, cure)
