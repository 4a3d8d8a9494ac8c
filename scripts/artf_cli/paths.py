"""Where things are: the repository, the cache outside it, and `dist/`."""

from __future__ import annotations

import os
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
BUILD = REPO / "build"
PATCHES = REPO / "patches"
DIST = REPO / "dist"
REQUIREMENTS = BUILD / "requirements"
PINS = BUILD / "pins.toml"


def cache_dir() -> Path:
    """The cache: `ARTF_CACHE`, else `$XDG_CACHE_HOME/artf`, else `~/.cache/artf` (created)."""
    named = os.environ.get("ARTF_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    path = Path(named) if named else (Path(base) if base else Path.home() / ".cache") / "artf"
    path = path.expanduser().resolve()
    path.mkdir(parents=True, exist_ok=True)
    return path
