"""The public images that the Dockerfiles start from, each pinned by digest where that is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tomlkit
from pydantic import StringConstraints

from artf_cli import tables
from artf_cli.console import note
from artf_cli.containers.engine import Engine
from artf_cli.errors import ArtfError
from artf_cli.paths import REPO
from artf_cli.tables import Strict

FILE = REPO / "docker" / "bases.toml"


class Base(Strict):
    """An image by its public name, and its digest in the registry; empty while that is unknown."""

    image: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._/-]*:[A-Za-z0-9_.-]+$")]
    digest: Annotated[str, StringConstraints(pattern=r"^(sha256:[0-9a-f]{64})?$")]


class Bases(Strict):
    """The whole of `docker/bases.toml`: the build arguments of the Dockerfiles."""

    BASE: Base
    SYSROOT_BASE: Base


def load(file: Path | None = None) -> dict[str, Base]:
    """Build argument → image, read from `file` (docker/bases.toml) and validated.

    An ArtfError names the first wrong entry.
    """
    return dict(tables.load(file or FILE, Bases))


def _digest(engine: Engine, image: str) -> str:
    """The public registry's digest of a local image; empty when it came from elsewhere.

    An image that was pulled from a mirror and named anew has the mirror's digest, under which the
    public name is not there.
    """
    name = image.partition(":")[0]
    own = {name, f"docker.io/{name}", f"docker.io/library/{name}"}
    found = engine.inspect(image) or {}
    for text in found.get("RepoDigests") or []:
        repository, _, digest = text.partition("@")
        if repository in own:
            return str(digest)
    return ""


def _pinned(image: str, digest: str) -> str:
    return f"{image.partition(':')[0]}@{digest}" if digest else image


def resolve(engine: Engine, names: Sequence[str], file: Path | None = None) -> dict[str, str]:
    """Build argument → image to start from, for each of `names`, pulled if need be.

    An image whose digest is recorded in `file` (docker/bases.toml) must have it; else the digest
    that the registry gave is used. An image that was loaded by hand has none, and a line says so.
    """
    arguments = {}
    recorded = load(file)
    for argument in names:
        image, digest = recorded[argument].image, recorded[argument].digest
        wanted = _pinned(image, digest)
        if engine.inspect(wanted) is None:
            note(f"pulling {wanted}")
            engine.ask("pull", "--quiet", wanted, seconds=None)
        digest = digest or _digest(engine, image)
        if digest:
            note(f"{image} is {digest}")
        else:
            note(f"{image} was not pulled from its own registry: it has no digest to pin")
        arguments[argument] = _pinned(image, digest)
    return arguments


def record(engine: Engine, file: Path | None = None) -> list[str]:
    """Asks the registry for each image and writes its digest into `file`; returns the names.

    Raises ArtfError when the registry cannot be reached, and leaves the file as it was.
    """
    file = file or FILE
    recorded = load(file)
    # With its comments.
    document = tomlkit.parse(file.read_text())
    names = []
    for argument, base in recorded.items():
        image = base.image
        engine.ask("pull", "--quiet", image, seconds=None)
        digest = _digest(engine, image)
        if not digest:
            raise ArtfError(f"{image} came without a digest", "remove the local image of that name")
        document[argument]["digest"] = digest  # type: ignore[index]
        names.append(f"{image}@{digest}")
    file.write_text(tomlkit.dumps(document))
    return names
