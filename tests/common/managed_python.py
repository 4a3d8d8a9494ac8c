"""A mirror of one managed Python: the tests' own stands for what uv would fetch from upstream."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tarfile
from pathlib import Path

_LEFT_OUT = ("/test/", "/site-packages/", "/__pycache__")


def _lean(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if any(part in member.name for part in _LEFT_OUT) else member


def _movable(program: bytes, library: Path) -> bytes:
    """A program that looks for its shared library beside it, not where it was installed."""
    installed = os.fsencode(library) + b"\0"
    beside = b"$ORIGIN/../lib\0"
    assert len(beside) <= len(installed) or installed not in program, f"{library} is too short"
    return program.replace(installed, beside.ljust(len(installed), b"\0"))


def packed() -> bytes:
    """The archive: the Python that the tests run on, as uv wants one to lie."""
    whole = io.BytesIO()
    base, version = Path(sys.base_prefix), "{}.{}".format(*sys.version_info[:2])
    with tarfile.open(fileobj=whole, mode="w:gz", compresslevel=1) as archive:
        program = _movable((base / f"bin/python{version}").read_bytes(), base / "lib")
        member = tarfile.TarInfo(f"python/bin/python{version}")
        member.size, member.mode = len(program), 0o755
        archive.addfile(member, io.BytesIO(program))
        for shared in base.glob(f"lib/libpython{version}.so*"):
            archive.add(shared, f"python/lib/{shared.name}")
        archive.add(base / f"lib/python{version}", f"python/lib/python{version}", filter=_lean)
    return whole.getvalue()


def listed(archive: bytes, url: str) -> str:
    """The list that `UV_PYTHON_DOWNLOADS_JSON_URL` names, with this one at `url`."""
    major, minor, patch = sys.version_info[:3]
    entry = {
        "name": "cpython",
        "arch": {"family": "x86_64", "variant": None},
        "os": "linux",
        "libc": "gnu",
        "major": major,
        "minor": minor,
        "patch": patch,
        "prerelease": "",
        "url": url,
        "sha256": hashlib.sha256(archive).hexdigest(),
        "variant": None,
        "build": "20260101",
    }
    return json.dumps({f"cpython-{major}.{minor}.{patch}-linux-x86_64-gnu": entry})
