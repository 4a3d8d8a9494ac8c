"""Finds or installs a Bazel, and runs it with this project's settings."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.markup import escape

from artf_cli import fetch, package_index, pins, supervise
from artf_cli.console import note
from artf_cli.errors import ArtfError
from artf_cli.paths import BUILD, REPO, cache_dir
from artf_cli.steps import Steps
from artf_cli.system import apt_install

# Debian's package.
PACKAGE = "bazel-bootstrap"
_SUPPORTED = range(4, 8)
_ANSWER_S = 120.0
# It may fetch a Bazel first.
_FETCH_S = 900.0
#: Variables that a user may set.
JOBS, BAZELRC = "ARTF_JOBS", "ARTF_BAZELRC"
# Where a distribution has its own programs.
_SYSTEM = (Path("/usr/bin"), Path("/bin"))
_STUBBED = ("rules_cc", "rules_java")
# Debian's Bazel 7 brings along the rules that others fetch, and tells Bazel so here.
_DEBIANS_RC = Path("/etc/bazel/bazelrc")
_OVERRIDE = re.compile(r"^[^#\n]*--override_module=(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class BazelChoice:
    """A Bazel to run: its path, its version, and why this one."""

    path: Path
    version: str
    why: str
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])


def _ask(path: Path, env: Mapping[str, str], seconds: float) -> tuple[str | None, str]:
    """The version that a Bazel says, or that Debian's package of it has; and its last word."""
    try:
        said = subprocess.run(
            [str(path), "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, **env},
            # Where it will build: bazelisk heeds a .bazelversion of the folder.
            cwd=REPO,
            timeout=seconds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    last = (said.stderr.strip().splitlines() or ["it said nothing"])[-1]
    found = re.search(r"(\d+\.\d+\.\d+)", said.stdout)
    # Debian's bazel-bootstrap says "no_version".
    if not found and "no_version" in said.stdout and shutil.which("dpkg-query"):
        query = ["dpkg-query", "-W", "-f", "${Version}", "bazel-bootstrap"]
        package = subprocess.run(query, capture_output=True, text=True).stdout
        found = re.match(r"(\d+\.\d+\.\d+)", package)
    return found.group(1) if found else None, last


def _supported(version: str) -> bool:
    return int(version.split(".")[0]) in _SUPPORTED


def _told() -> dict[str, str]:
    """What makes bazelisk be the pinned Bazel."""
    pin = pins.load().bazelisk
    return {"USE_BAZEL_VERSION": pin.bazel, "BAZELISK_VERIFY_SHA256": pin.bazel_sha256}


def _examine(path: Path, why: str) -> BazelChoice | None:
    """A choice when `path` is a Bazel that we can use, as it is or told which version to be."""
    told = _told()
    # bazelisk, also under the name bazel, fetches the newest Bazel unless told.
    plain = path.name != "bazelisk" or "USE_BAZEL_VERSION" in os.environ
    version = _ask(path, {}, _ANSWER_S)[0] if plain else None
    if version and _supported(version):
        return BazelChoice(path, version, why)
    if plain and version is None:
        return None
    wanted = told["USE_BAZEL_VERSION"]
    note(f"asking {path} for Bazel {wanted}, which bazelisk may have to fetch")
    version = _ask(path, {**_as_pip_does(), **told}, _FETCH_S)[0]
    return BazelChoice(path, version, why, told) if version and _supported(version) else None


def _pinned() -> BazelChoice | None:
    """The pinned Bazel, where it was fetched before; an ArtfError: its bytes have changed."""
    pin = pins.load().bazelisk
    # bazelisk's own layout. It would run Bazel as a child, which outlives a killed bazelisk.
    path = _home() / "downloads" / "sha256" / pin.bazel_sha256 / "bin" / "bazel"
    if not path.exists():
        return None
    pins.verify(path, pin.bazel_sha256, f"delete {_home()} and run again")
    return BazelChoice(path, pin.bazel, "the pinned one, which bazelisk fetched")


def _home() -> Path:
    return cache_dir() / "bazelisk"


def _as_pip_does() -> dict[str, str]:
    """Variables by which bazelisk fetches with pip's proxy and certificates."""
    try:
        return package_index.variables(package_index.settings())
    except package_index.FetchError as error:
        raise ArtfError(error.what, error.cure) from None


def _fetch() -> BazelChoice | None:
    """As `_pinned`, fetched by the pinned bazelisk; None, with a note, where that is in vain."""
    pin = pins.load().bazelisk
    note(f"no Bazel of version 4 to 7 on PATH; asking bazelisk for {pin.bazel} (once)")
    try:
        path = fetch.bazelisk(pin)
    except fetch.NotReached as error:
        note(f"bazelisk is out of reach: {error}")
        return None
    env = {**_as_pip_does(), **_told(), "BAZELISK_HOME": str(_home())}
    _, last = _ask(path, env, _FETCH_S)
    choice = _pinned()
    if choice is None:
        note(f"bazelisk got no Bazel {pin.bazel}: {last}")
    return choice


def find() -> BazelChoice | None:
    """The Bazel that is here: `ARTF_BAZEL`, else the first usable one on PATH, else the pinned one
    if it was fetched before.

    An ArtfError says that the one which `ARTF_BAZEL` names cannot be used.
    """
    named = os.environ.get("ARTF_BAZEL")
    if named:
        choice = _examine(Path(named).absolute(), "ARTF_BAZEL names it")
        if choice is None:
            raise ArtfError(
                f"ARTF_BAZEL={named} is not a Bazel of version 4 to 7", "name another or unset it"
            )
        return choice
    for name in ("bazel", "bazelisk", "bazel-bootstrap"):
        found = shutil.which(name)
        choice = _examine(Path(found).absolute(), f"{name} on PATH") if found else None
        if choice is not None:
            return choice
    return _pinned()


def ensure() -> BazelChoice:
    """The Bazel to build with: `find`'s, else one that is fetched, else Debian's package.

    An ArtfError has the command when that cannot be installed.
    """
    choice = find() or _fetch()
    if choice is None:
        apt_install("Bazel 4 to 7", [PACKAGE])
        choice = find()
    if choice is None:
        raise ArtfError(
            "no Bazel of version 4 to 7", "install bazelisk and put it on PATH, or set ARTF_BAZEL"
        )
    note(f"Bazel {choice.version} ({choice.path}: {choice.why})")
    return choice


def _arguments(choice: BazelChoice, settings: dict[str, str]) -> list[str]:
    arguments = [f"--repo_env={name}={value}" for name, value in settings.items()]
    if choice.major < 5:
        # These are fetched from the network although nothing but toolchain set-up reads them.
        arguments += [f"--override_repository={n}={BUILD / 'bazel4' / n}" for n in _STUBBED]
    if choice.major >= 7:
        # So a module has no say any more, and what the rc says of modules must be said again.
        arguments += ["--noenable_bzlmod"]
        if choice.path.resolve().parent in _SYSTEM and _DEBIANS_RC.exists():
            found = _OVERRIDE.findall(_DEBIANS_RC.read_text())
            arguments += [f"--override_repository={each}" for each in found]
    return arguments


def _own_rc() -> list[str]:
    """What makes Bazel read `ARTF_BAZELRC`, the user's own file, after the project's."""
    named = os.environ.get(BAZELRC)
    if not named:
        return []
    path = Path(named).absolute()
    if path.is_dir() or not path.exists():
        raise ArtfError(f"{BAZELRC}={named} is no file", "name a bazelrc, or unset it")
    return [f"--bazelrc={path}"]


def _jobs() -> list[str]:
    """`ARTF_JOBS`: how many compilers may run at a time; as many as there are cores without it."""
    named = os.environ.get(JOBS)
    if not named:
        return []
    if not re.fullmatch("[1-9][0-9]{0,3}", named):
        raise ArtfError(f"{JOBS}={named} is no number of compilers", "name one from 1, or unset it")
    # Bazel's own --jobs stays high (build/bazelrc); this is what bounds those that run.
    return [f"--local_cpu_resources={named}"]


def _search_paths() -> list[str]:
    """Actions see PATH and LD_LIBRARY_PATH where the compiler is none of the system's.

    One of a module or of conda may find its assembler by them, and what it compiles for the build
    its C++ library. The system's need neither, and then another PATH must not compile everything
    again.
    """
    named = os.environ.get("CC") or "gcc"
    if len(named.split()) > 1:
        raise ArtfError(f"CC={named} is more than a program", "name one, or a script that runs it")
    found = shutil.which(named)
    if found is None or {Path(found).parent, Path(found).resolve().parent} & set(_SYSTEM):
        return []
    values = {name: os.environ.get(name, "") for name in ("PATH", "LD_LIBRARY_PATH")}
    # The bare name where it has none of its own.
    library = Path(_print(found, "-print-file-name=libstdc++.so.6"))
    # One in the root of another system, to compile for, as docker/old-cc has it, is none that
    # programs of this system may load.
    sysroot = _print(found, "-print-sysroot").rstrip("/")
    library = library.resolve() if library.is_absolute() else library
    theirs = bool(sysroot) and Path(sysroot).resolve() in library.parents
    if library.is_absolute() and not theirs:
        own = [str(library.parent), values["LD_LIBRARY_PATH"]]
        values["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, own))
    return [
        f"--{kind}={name}={value}"
        for name, value in values.items()
        if value
        for kind in ("action_env", "host_action_env")
    ]


def _print(compiler: str, option: str) -> str:
    return subprocess.run([compiler, option], capture_output=True, text=True).stdout.strip()


def local_settings() -> tuple[list[str], list[str]]:
    """Bazel's options before and after its command, by what the user has set on this machine.

    An ArtfError names a setting that is wrong.
    """
    return _own_rc(), [*_jobs(), *_search_paths()]


def build(choice: BazelChoice, target: str, settings: dict[str, str], config: str = "") -> Path:
    """Builds `target` and returns the folder `bazel-bin`; an ArtfError has the first error.

    `choice` is what `ensure` found; `settings` are environment variables for the repository
    rules; `config` is one of build/bazelrc.
    Bazel runs in batch mode: no server stays behind, and it ends when this process ends. Only where
    it is the user's own bazelisk and this process is killed (SIGKILL), which that one outlives.
    """
    cache = cache_dir()
    settings = {"ARTF_PYTHON": sys.executable, "ARTF_CACHE": str(cache), **settings}
    out = cache / "out" / hashlib.sha256(str(REPO).encode()).hexdigest()[:12]
    out.mkdir(parents=True, exist_ok=True)
    command: list[str | Path] = [choice.path, "--batch", f"--output_user_root={cache / 'bazel'}"]
    # The system rc stays: Debian's says where its Bazel keeps its parts.
    before, after = local_settings()
    command += ["--nohome_rc", f"--bazelrc={BUILD / 'bazelrc'}", *before]
    command += ["build", *_arguments(choice, settings), *after]
    command.append(f"--symlink_prefix={out}/")
    command += ["--color=no", "--curses=no", "--show_progress_rate_limit=10", target]
    if config:
        command.append(f"--config={config}")
    env = {**os.environ, **choice.env}
    with supervise.log_folder("build") as logs, supervise.Group(logs, grace_s=20) as group:
        child = group.start("bazel", command, env=env, cwd=REPO)
        with child.stderr.open(errors="replace") as stream, Steps("compile") as steps:
            status: int | None = None
            while status is None:
                status = child.status()
                for line in stream:
                    if line.startswith("artf:"):
                        note(escape(line.partition(":")[2].strip()))
                    steps.take(line)
                time.sleep(0.2)
        if status != 0:
            raise ArtfError(
                f"the build failed: {_first_error(child.stderr)}", f"read its log {child.stderr}"
            )
    return out / "bin"


def _first_error(log: Path) -> str:
    """What to tell a user: our own message if the repository rules had one, else Bazel's first."""
    lines = log.read_text(errors="replace").splitlines()
    ours = [line.split("artf: ", 1)[1] for line in lines if "artf: " in line and "; " in line]
    # Where a repository rule fails, what it said stands below Bazel's own first line.
    theirs = [line.strip() for line in lines if line.startswith("Error in ")]
    found = ours or theirs or [line for line in lines if "error:" in line.lower()] or lines[-1:]
    return found[0][:400] if found else "no message"
