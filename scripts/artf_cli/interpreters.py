"""The Pythons that the wheels are for: those of this machine, else one that is fetched."""

from __future__ import annotations

from pathlib import Path

from artf_cli import uv
from artf_cli.errors import ArtfError
from artf_cli.package_index import FetchError

VERSIONS = ("3.9", "3.10", "3.11")


def _tag(version: str) -> str:
    return f"cp{version.replace('.', '')}"


def here() -> dict[str, Path]:
    """Tag (`cp311`) → interpreter, for each Python of ours that is here and runs."""
    try:
        found = {_tag(version): uv.find_python(version) for version in VERSIONS}
    except FetchError as error:
        raise ArtfError(error.what, error.cure) from None
    return {tag: path for tag, path in found.items() if path}


def need(tag: str) -> Path:
    """The interpreter for a wheel's tag, fetched where there is none; an ArtfError says why not."""
    version = f"3.{tag[3:]}"
    try:
        return uv.need_python(version)
    except FetchError as error:
        raise ArtfError(
            f"no Python {version} here, and {error.what}",
            f"{error.cure}, or put it on PATH (of a module, conda or pyenv), or choose another by "
            "--python",
        ) from None
