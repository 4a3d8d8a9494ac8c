"""The record of a wheel that two builds made alike: of which inputs, by which tools, which bytes.

While inputs and tools are those of the record, a build that gives the recorded bytes is the second
of two builds that agree, from another folder and another cache: no third one is needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

from artf_cli import bazel, pins
from artf_cli.paths import BUILD, REPO

RECORD = BUILD / "reproduced.json"
#: Of artf_cli, what runs inside a build or gives Bazel its settings.
MODULES = [
    *("bazel", "build", "console", "errors", "fetch", "package_index", "patches", "paths"),
    *("pins", "sources", "tables", "wheel"),
]
# All that they match and that is installed: compiler, headers, linker. What is missing
# here can make the comparison fail, never pass.
_PACKAGES = [
    *("binutils*", "cpp*", "g++*", "gcc*", "lib*gcc*-dev", "libc6-dev", "libstdc++-*-dev"),
]


@dataclass(frozen=True)
class Made:
    """A wheel, and all that decides its bytes."""

    inputs: str
    tools: dict[str, str]
    wheel: str
    sha256: str


def input_files(root: Path = REPO) -> list[Path]:
    """The files of the tree that a build reads."""
    found = [root / "WORKSPACE", root / "scripts/BUILD", root / "build/requirements/tools.txt"]
    found += [root / f"scripts/artf_cli/{name}.py" for name in MODULES]
    found += [path for path in (root / "build").glob("*") if path.name != RECORD.name]
    for folder in ("build/bazel4", "patches", "third_party/ar_grpc"):
        found += (root / folder).rglob("*")
    return sorted(path for path in found if path.is_file())


def hash_of(files: list[Path], root: Path = REPO) -> str:
    """One hash of the names and the contents of files below `root`."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(root)}\0{pins.sha256_of(path)}\0".encode())
    return digest.hexdigest()


def tools() -> dict[str, str]:
    """The versions of what compiles, links and packs; empty where no Debian says them."""
    query = ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}\t${Package}\t${Version}\n", *_PACKAGES]
    try:
        listed = subprocess.run(query, capture_output=True, text=True).stdout
    except OSError:
        return {}
    rows = [line.split("\t") for line in listed.splitlines()]
    found = {name: version for status, name, version in rows if status.startswith("ii")}
    engine = bazel.find()
    if not found or engine is None:
        return {}
    return {
        **found,
        "bazel": engine.version,
        "CC": os.environ.get("CC", ""),
        "python": sys.version.split()[0],
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
    }


def made(wheel: Path) -> Made:
    """What `wheel`, just built from this tree, is made of."""
    return Made(hash_of(input_files()), tools(), wheel.name, pins.sha256_of(wheel))


def load(path: Path = RECORD) -> Made | None:
    """The record; None where there is none."""
    return Made(**json.loads(path.read_text())) if path.exists() else None


def save(found: Made, path: Path = RECORD) -> None:
    """Writes the record."""
    path.write_text(json.dumps(asdict(found), indent=1, sort_keys=True) + "\n")


def differences(recorded: Made | None, now: Made) -> list[str]:
    """Why the record says nothing of the wheel that was built now; empty when it does."""
    if recorded is None:
        return [f"there is no {RECORD.name}"]
    if not now.tools:
        return ["the versions of the tools are not known here"]
    names = sorted(set(recorded.tools) | set(now.tools))
    found = [
        f"{name}: {recorded.tools.get(name, 'none')}, now {now.tools.get(name, 'none')}"
        for name in names
        if recorded.tools.get(name) != now.tools.get(name)
    ]
    if recorded.inputs != now.inputs:
        found.append("the files that a build reads have changed")
    if recorded.wheel.split("-")[:3] != now.wheel.split("-")[:3]:
        found.append(f"the record is of {recorded.wheel}")
    return found
