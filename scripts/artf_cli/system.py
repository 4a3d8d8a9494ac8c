"""System packages: installed when this is root on a Debian, else asked for by exact command.

Which there are, and by which family of distributions, is said by build/requirements/system.ini.
"""

from __future__ import annotations

import configparser
import functools
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from artf_cli.console import note
from artf_cli.errors import ArtfError
from artf_cli.paths import REQUIREMENTS, cache_dir

TABLE = REQUIREMENTS / "system.ini"
APT = "apt"
_ROOT = Path("/")
_FAMILY = "family "


@dataclass(frozen=True)
class Need:
    """What is needed of the system: probes of which one is enough, and what has it."""

    what: str
    probes: tuple[str, ...]
    packages: Mapping[str, tuple[str, ...]]
    way: str
    optional: bool

    def there(self) -> bool:
        return any(there(probe) for probe in self.probes)


@functools.cache
def _read() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.read_string(TABLE.read_text(), str(TABLE))
    return parser


def families() -> dict[str, tuple[str, str]]:
    """Family → the words of os-release that tell it, and its install command."""
    parser = _read()
    return {
        name[len(_FAMILY) :]: (parser[name]["ids"], parser[name]["install"])
        for name in parser.sections()
        if name.startswith(_FAMILY)
    }


def needs() -> dict[str, Need]:
    """The table, by name."""
    parser = _read()
    return {
        name: Need(
            what=parser[name]["what"],
            probes=tuple(parser[name].get("probe", "").split()),
            packages={
                each: tuple(parser[name][each].split())
                for each in families()
                if each in parser[name]
            },
            way=parser[name]["way"],
            optional="optional" in parser[name],
        )
        for name in parser.sections()
        if not name.startswith(_FAMILY)
    }


def there(probe: str) -> bool:
    """Whether a probe of the table finds something."""
    if probe.startswith("$"):
        probe = os.environ.get(probe[1:]) or "/no such variable"
        return shutil.which(probe) is not None or Path(probe).is_file()
    return Path(probe).exists() if probe.startswith("/") else shutil.which(probe) is not None


def family(root: Path = _ROOT) -> str | None:
    """The family of this distribution, as scripts/preflight tells it; None: an unknown one."""
    try:
        lines = (root / "etc/os-release").read_text().splitlines()
    except OSError:
        return None
    said = dict(line.partition("=")[::2] for line in lines)
    words = " ".join(said.get(key, "").strip("\"'") for key in ("ID", "ID_LIKE")).split()
    for word in words:
        for name, (ids, _) in families().items():
            if word.partition("-")[0] in ids.split():
                return name
    return None


def _command(name: str, packages: Sequence[str]) -> str:
    return f"as root run: {families()[name][1]} {' '.join(dict.fromkeys(packages))}"


def how_to_install(packages: Sequence[str], root: Path = _ROOT) -> str:
    """The cure for missing `packages`, which have apt's names: this distribution's command."""
    here = family(root)
    if here == APT:
        return _command(APT, packages)
    found = {name: need for need in needs().values() for name in need.packages.get(APT, ())}
    known = {name: found[name].packages.get(here or "", ()) for name in packages if name in found}
    others = [name for name in packages if name not in found or not here]
    cures = [f"install what Debian calls {' '.join(others)}"] if others else []
    if here:
        cures += [found[name].way for name, theirs in known.items() if not theirs]
        install = [package for theirs in known.values() for package in theirs]
        cures += [_command(here, install)] if install else []
    return "; ".join(cures)


def cure(name: str, root: Path = _ROOT) -> str:
    """The cure for one need of the table: what to do without root, and the command."""
    need = needs()[name]
    here = family(root)
    packages = need.packages.get(here or APT)
    if not packages:
        return need.way
    install = _command(here, packages) if here else how_to_install(packages, root)
    return f"without root: {need.way}; {install}"


def missing(wanted: Mapping[str, str]) -> list[str]:
    """The packages of those (programs on PATH, or absolute paths) that are not there."""
    return [package for probe, package in wanted.items() if not there(probe)]


def apt_install(what: str, packages: Sequence[str]) -> None:
    """Installs Debian packages as root; else an ArtfError with the command that root must run."""
    cure = how_to_install(packages)
    if os.geteuid() != 0 or family() != APT or shutil.which("apt-get") is None:
        raise ArtfError(f"{what} is missing", cure)
    note(f"{what} is missing; installing {', '.join(packages)}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Java's packages fail without this folder, which slim images lack.
    Path("/usr/share/man/man1").mkdir(parents=True, exist_ok=True)
    command = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    # Suites that run side by side may want packages at the same time, and apt-get's second one
    # fails at once.
    with FileLock(cache_dir() / "apt-get.lock"):
        for step in (["apt-get", "update", "-qq"], command):
            done = subprocess.run(step, env=env, capture_output=True, text=True)
            if done.returncode != 0:
                last = (done.stderr.strip().splitlines() or ["no message"])[-1]
                raise ArtfError(f"{' '.join(step)} failed: {last}", cure)


def ensure_build_tools() -> None:
    """What a build needs but Python, and does not fetch itself."""
    absent = [
        package
        for need in needs().values()
        if need.probes and not need.optional and not need.there()
        for package in need.packages[APT]
    ]
    if absent:
        apt_install("part of the build tools", list(dict.fromkeys(absent)))
