"""uv, which makes each environment and finds or fetches each Python (https://docs.astral.sh/uv).

One release of it, pinned by hash in build/requirements/uv.txt, comes from the package index that
pip is set up for; `ARTF_UV` names a program instead. All that uv fetches it fetches by pip's
settings, too, where variables of its own do not say otherwise. No uv.toml is read.

Standard library only, and Python 3.6 can run it: it is what gets the Python that artf runs on.
"""

import contextlib
import fcntl
import io
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Iterator

from artf_cli import package_index
from artf_cli.package_index import FetchError

PIN = Path(__file__).resolve().parents[2] / "build" / "requirements" / "uv.txt"
#: The Python that is fetched where none here will do.
FETCHED = "3.11"
#: uv's variables that a user may set: those that say from where and how. With another one, uv might
#: install elsewhere or something else than the locks say.
_HEEDED = (
    *("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"),
    *("UV_INSECURE_HOST", "UV_KEYRING_PROVIDER", "UV_HTTP_TIMEOUT", "UV_HTTP_CONNECT_TIMEOUT"),
    *("UV_OFFLINE", "UV_SYSTEM_CERTS", "UV_CACHE_DIR"),
    *("UV_CONCURRENT_BUILDS", "UV_CONCURRENT_DOWNLOADS", "UV_CONCURRENT_INSTALLS"),
    *("UV_PYTHON_DOWNLOADS", "UV_PYTHON_DOWNLOADS_JSON_URL", "UV_PYTHON_INSTALL_DIR"),
    *("UV_PYTHON_INSTALL_MIRROR", "UV_PYTHON_CACHE_DIR"),
)
#: Of an index that UV_INDEX names: UV_INDEX_NAME_USERNAME and UV_INDEX_NAME_PASSWORD.
_LOGIN = re.compile(r"UV_INDEX_\w+_(USERNAME|PASSWORD)")
#: Python says its name within this time, or it is a shim that hangs.
_SEARCH_S = 60.0


def cache_dir() -> Path:
    """As `artf_cli.paths.cache_dir`, which an old Python cannot read; it may not exist yet."""
    named = os.environ.get("ARTF_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    path = Path(named) if named else (Path(base) if base else Path.home() / ".cache") / "artf"
    return path.expanduser().resolve()


def say(words: str) -> None:
    """Tells the user something, as artf's own `note` does, which needs the environment."""
    sys.stderr.write(f"artf: {words}\n")
    # Before Python 3.9 a file gets it late, and never from a process that becomes another program.
    sys.stderr.flush()


def _pip_says(env: "dict[str, str]", pip: "dict[str, str]") -> None:
    """Adds what pip's settings say to uv's variables in `env`."""
    for name, variable in package_index.VARIABLES.items():
        words = pip.get(name, "").split()
        if name in package_index.PLACES:
            words = [place for place in words if package_index.can_be_asked(place)]
        # uv knows one way of keyring's, and none is its default.
        if words and (name != "keyring-provider" or words == ["subprocess"]):
            env.setdefault(variable, ("," if name == "find-links" else " ").join(words))
    # For pip these go before the variables that are not its own.
    env.update(package_index.variables(pip))


def _number(path: Path) -> "list[int]":
    return [int(part) for part in re.findall(r"\d+", path.parent.name)]


def _more_pythons() -> "list[str]":
    """Folders of Pythons that PATH may not have: under the environment that artf was started in,
    pyenv's, of which only the chosen ones have a shim that runs, and the user's of uv."""
    home = package_index.home()
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv").glob("versions/3.*/bin")
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    own = data.glob("uv/python/cpython-3.*/bin")
    found = [path for each in (pyenv, own) for path in sorted(each, key=_number, reverse=True)]
    return [str(Path(sys.base_prefix) / "bin"), *(str(path) for path in found)]


def environ() -> "dict[str, str]":
    """uv's variables: the caller's that we heed, and what pip's settings say. Raises FetchError."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("UV_") or name in _HEEDED or _LOGIN.match(name)
    }
    _pip_says(env, package_index.settings())
    env.setdefault("UV_CACHE_DIR", str(cache_dir() / "uv"))
    env.setdefault("UV_PYTHON_INSTALL_DIR", str(cache_dir() / "pythons"))
    # As Debian's and Fedora's pip: what update-ca-certificates was told.
    env.setdefault("UV_SYSTEM_CERTS", "1")
    env["UV_NO_CONFIG"] = "1"
    # pip looks in all of them, too; which file it is, its hash says.
    env["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    # What is here goes before what was fetched.
    env["UV_PYTHON_PREFERENCE"] = "system"
    # For one file, beside whatever else the machine does.
    env["UV_COMPILE_BYTECODE_TIMEOUT"] = "600"
    env["PATH"] = os.pathsep.join([env.get("PATH") or os.defpath, *_more_pythons()])
    return env


def pinned() -> "tuple[str, str]":
    """The release, and the sha256 of its wheel for this platform."""
    found = re.search(r"^uv==(\S+) \\\n +--hash=sha256:([0-9a-f]{64})$", PIN.read_text(), re.M)
    if found is None:
        raise FetchError(f"{PIN} names no uv", "take that file from the repository again")
    return found.group(1), found.group(2)


@contextlib.contextmanager
def lock(path: Path, doing: str) -> "Iterator[int]":
    """Holds a file's lock; while another artf has it, says that it is `doing` something.

    Gives the file's number, for children that must hold it, too. Raises FetchError.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        guard = path.open("w")
    except OSError as wrong:
        raise FetchError(
            f"cannot write the cache {path.parent}: {wrong}", "set ARTF_CACHE to a folder of yours"
        ) from None
    with guard:
        try:
            try:
                fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"another artf {doing}; waiting for it")
                fcntl.flock(guard, fcntl.LOCK_EX)
        except OSError as wrong:
            raise FetchError(
                f"the file system of the cache {path.parent} locks no file (flock: {wrong})",
                "set ARTF_CACHE to a folder on one that does, as a disk of this node's own",
            ) from None
        yield guard.fileno()


def _fetch(program: Path, version: str, sha256: str) -> None:
    say(f"fetching uv {version} (once)")
    file = f"uv-{version}-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    try:
        wheel = package_index.fetch("uv", file, sha256)
    except FetchError as wrong:
        raise FetchError(wrong.what, f"{wrong.cure}, or name a uv in ARTF_UV") from None
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        content = archive.read(f"uv-{version}.data/scripts/uv")
    half = program.with_name("half")
    try:
        half.write_bytes(content)
        half.chmod(0o755)
        half.rename(program)
    except OSError as wrong:
        raise FetchError(
            f"cannot write {program}: {wrong}", "set ARTF_CACHE to another folder"
        ) from None


def binary() -> Path:
    """The program, fetched when it is first asked for. Raises FetchError."""
    named = os.environ.get("ARTF_UV")
    if named:
        found = shutil.which(named)
        if found is None:
            raise FetchError(f"ARTF_UV={named} is no program", "name uv's path, or unset it")
        return Path(found).absolute()
    version, sha256 = pinned()
    program = cache_dir() / f"uv-{version}-{sha256[:12]}" / "uv"
    if not program.exists():
        with lock(program.parent / "lock", "fetches uv"):
            if not program.exists():
                _fetch(program, version, sha256)
    return program


def _ask(
    words: "tuple[object, ...]", held: int = -1, seconds: "float | None" = None
) -> "tuple[int, str, str]":
    """uv's exit status, what it prints and what it says."""
    program = binary()
    try:
        done = subprocess.run(
            [str(word) for word in (program, *words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ(),
            timeout=seconds,
            # Should this process die, nobody else begins before uv has ended.
            pass_fds=(held,) if held >= 0 else (),
        )
    except OSError as wrong:
        raise FetchError(
            f"cannot run {program}: {wrong}", "set ARTF_CACHE to a folder whose programs may run"
        ) from None
    except subprocess.TimeoutExpired:
        raise FetchError(
            f"no answer within {seconds} s to: uv {' '.join(map(str, words))}",
            "see which Python on PATH does not answer",
        ) from None
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def _failed(words: "tuple[object, ...]", said: str) -> FetchError:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # What failed, then each cause on a line of its own.
    first = next((n for n, line in enumerate(lines) if line.startswith("error:")), 0)
    why = ": ".join(re.sub(r"^(error|cause): ", "", line) for line in lines[first:][:6])
    return FetchError(
        f"uv {words[0]} {words[1]} failed: {why or 'no message'}",
        "check the network, the disk and the settings of pip and uv",
    )


def run(*words: object, held: int = -1) -> str:
    """What uv prints; `held` is the lock of what it writes. Raises FetchError with what it says."""
    status, out, said = _ask(words, held)
    if status != 0:
        raise _failed(words, said)
    return out.strip()


def find_python(version: str) -> "Path | None":
    """A Python of `version` (`3.11`, `>=3.9`) that runs here, or was fetched. Raises FetchError."""
    words = ("python", "find", "--system", "--no-project", "--no-python-downloads", version)
    status, out, said = _ask(words, seconds=_SEARCH_S)
    if status == 0:
        return Path(out.strip())
    if "no interpreter found" in said.lower():
        return None
    raise _failed(words, said)


def need_python(version: str) -> Path:
    """A Python of `version`: one that is here, else one that uv fetches. Raises FetchError."""
    found = find_python(version)
    if found is not None:
        return found
    say(f"no Python {version} here; asking uv for one (once)")
    run("python", "install", "--no-bin", version)
    found = find_python(version)
    if found is None:
        where = environ()["UV_PYTHON_INSTALL_DIR"]
        raise FetchError(f"the Python {version} in {where} does not run", "remove it")
    return found


def make(
    python: Path, root: Path, lock_file: Path, wheel: "Path | None" = None, held: int = -1
) -> None:
    """Makes the environment `root` of `python`: what `lock_file` names by hashes, and `wheel`.

    All of it is compiled, since nothing here writes bytecode later. `held` is the lock of `root`.
    Raises FetchError; then there is no `root`.
    """
    install = ["pip", "install", "--no-deps", "--python", str(root / "bin" / "python")]
    if package_index.is_set(package_index.settings().get(package_index.NO_INDEX, "")):
        install.append("--no-index")
    # uv compiles what a call installs, so each call asks for it.
    install.append("--compile-bytecode")
    unpacked = root.with_name(f"{root.name}.unpacked")
    shutil.rmtree(str(root), ignore_errors=True)
    try:
        run("venv", "--no-project", "--python", python, root, held=held)
        hashed = ["--require-hashes", "-r", lock_file]
        run(*install, *hashed, held=held)
        if wheel:
            # Not the cache of all, which would keep each wheel that was ever built here; and not
            # uv's folder for no cache, in /tmp, which may be small.
            run(*install, "--cache-dir", unpacked, wheel, held=held)
        run("pip", "check", "--python", root / "bin" / "python")
    except BaseException:
        shutil.rmtree(str(root), ignore_errors=True)
        raise
    finally:
        shutil.rmtree(str(unpacked), ignore_errors=True)


def hand_over(program: str) -> None:
    """Runs `program` with this one's arguments on a Python that artf runs on; start.py calls it."""
    try:
        python = str(find_python(">=3.9") or need_python(FETCHED))
    except FetchError as wrong:
        old = "{}.{}".format(*sys.version_info[:2])
        say(
            f"Python {old} is too old, and {wrong.what}; {wrong.cure}, or put Python 3.9 or newer "
            "on PATH"
        )
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    os.execv(python, [python, program, *sys.argv[1:]])
