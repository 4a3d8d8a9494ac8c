"""scripts/preflight: what is missing is said at once, in this distribution's words, or it goes on.

Distributions and machines are faked: that proves the words, not that their packages have the names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from concurrent import futures
from pathlib import Path

import pytest
from click.testing import CliRunner

from artf_cli import build, cli, system, uv
from artf_cli.errors import ArtfError
from artf_cli.package_index import FetchError
from artf_cli.paths import REPO
from artf_cli.testing import run as testing

PREFLIGHT = REPO / "scripts/preflight"
DISTRIBUTIONS = {
    "rocky8": ('NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf"),
    "rocky9": ('ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\n', "dnf"),
    "fedora": ("ID=fedora\nVERSION_ID=40\n", "dnf"),
    "leap": ('ID="opensuse-leap"\nID_LIKE="suse opensuse"\n', "zypper"),
    "tumbleweed": ('ID="opensuse-tumbleweed"\nID_LIKE="opensuse suse"', "zypper"),
    "arch": ("ID=arch\n", "pacman"),
    "ubuntu2404": ("PRETTY_NAME='Ubuntu 24.04 LTS'\nID=ubuntu\nID_LIKE=debian\n", "apt"),
    "debian12": ('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n', "apt"),
}
#: The whole command for a machine that has nothing, as who is not root is told.
COMMANDS = {
    "apt": "apt-get update && apt-get install -y --no-install-recommends python3 ca-certificates "
    "g++ git",
    "dnf": "dnf install -y python3.11 ca-certificates gcc-c++ git",
    "zypper": "zypper --non-interactive install python311 ca-certificates-mozilla gcc-c++ git",
    "pacman": "pacman -S --needed --noconfirm python ca-certificates gcc git",
}
TOOLS = ("g++", "git")


class Machine:
    """A root of its own, and a PATH with what a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.root, self.bin, self.home = folder / "root", folder / "bin", folder / "home"
        for each in (self.root / "etc", self.bin, self.home):
            each.mkdir(parents=True)
        for name in ("sh", "dirname", "mkdir"):
            (self.bin / name).symlink_to(str(shutil.which(name)))
        self.says("uname", "case $1 in -s) echo Linux;; -m) echo x86_64;; esac")
        self.says("getconf", "echo glibc 2.36")
        self.user(1000)
        self.distribution("debian12")

    def says(self, name: str, lines: str) -> None:
        path = self.bin / name
        path.write_text(f"#!{shutil.which('sh')}\n{lines}\n")
        path.chmod(0o755)

    def user(self, number: int) -> None:
        self.says("id", f"echo {number}")

    def distribution(self, name: str) -> None:
        (self.root / "etc/os-release").write_text(DISTRIBUTIONS[name][0])

    def python(self, version: str, name: str = "python3") -> None:
        self.says(name, f"echo {version}")

    def tools(self, *left_out: str) -> None:
        for name in set(TOOLS) - set(left_out):
            self.says(name, "")
        certificates = self.root / "etc/ssl/certs/ca-certificates.crt"
        certificates.parent.mkdir(parents=True, exist_ok=True)
        certificates.touch()

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PREFLIGHT, self.root, *arguments],
            env={"PATH": str(self.bin), "HOME": str(self.home), **env},
            capture_output=True,
            text=True,
        )

    def refuses(self, *arguments: str, **env: str) -> list[str]:
        """The lines that it says; each names a thing and a cure."""
        done = self.run(*arguments, **env)
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        lines = done.stderr.splitlines()
        assert all(line.startswith("artf: ") and "; " in line for line in lines), lines
        return lines

    def takes(self, *arguments: str, **env: str) -> str:
        """The name of the Python that it goes on with, without a word."""
        done = self.run(*arguments, **env)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip().replace(f"{self.bin}/", "")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_all_that_is_missing_is_said_at_once(machine: Machine, name: str) -> None:
    machine.distribution(name)
    lines = machine.refuses("quickstart")
    family = DISTRIBUTIONS[name][1]
    assert lines[-1].endswith(f"; as root run: {COMMANDS[family]}")
    said = "\n".join(lines)
    for need in system.needs().values():
        if need.probes and not need.optional:
            assert f"artf: {need.what} is missing; " in said
            assert need.way in said
    assert system.family(machine.root) == family


def test_root_elsewhere_is_told_the_command(machine: Machine) -> None:
    machine.distribution("fedora")
    machine.user(0)
    assert machine.refuses("build") == [
        "artf: missing on this distribution: Python 3.9 or newer, certificate authorities, g++, "
        f"git; as root run: {COMMANDS['dnf']}",
    ]


def test_an_unknown_distribution_is_told_debians_names(machine: Machine) -> None:
    (machine.root / "etc/os-release").unlink()
    machine.python("3.11")
    machine.tools("git")
    assert machine.refuses("build") == [
        "artf: git is missing; without root: load a module that has it, or take conda's",
        "artf: missing on this distribution: git; install what Debian calls git",
    ]
    assert system.family(machine.root) is None
    assert system.how_to_install(["git"], machine.root) == "install what Debian calls git"


def test_root_on_debian_has_it_installed(machine: Machine, tmp_path: Path) -> None:
    machine.user(0)
    machine.python("3.11")
    machine.tools("git")
    log = tmp_path / "log"
    git = f"echo >{machine.bin}/git; {shutil.which('chmod')} +x {machine.bin}/git"
    machine.says("apt-get", f'echo "$@" >>{log}; [ "$1" = update ] || {{ {git}; }}')
    done = machine.run("build")
    assert done.returncode == 0
    assert done.stderr == "artf: git: missing; installing git\n"
    assert log.read_text() == "update -qq\ninstall -y -qq --no-install-recommends git\n"
    assert machine.takes("build") == "python3"


def test_what_apt_says_goes_before_the_cure(machine: Machine) -> None:
    machine.user(0)
    machine.says("apt-get", "echo E: no network >&2; exit 100")
    done = machine.run("doctor")
    assert done.returncode == 1
    assert done.stderr.splitlines()[1:] == [
        "E: no network",
        "artf: apt-get failed; see the message above, or as root run: apt-get update && "
        "apt-get install -y --no-install-recommends python3",
    ]


def test_root_is_not_told_what_apt_has_done_in_vain(machine: Machine) -> None:
    machine.user(0)
    machine.python("3.5")
    machine.says("apt-get", "")
    done = machine.run("doctor")
    assert done.returncode == 1
    assert done.stderr.splitlines()[1:] == [
        f"artf: Python 3.9 or newer ({machine.bin}/python3 is 3.5) is missing; "
        "put one of a module, conda or pyenv on PATH"
    ]


def test_root_gets_nothing_that_does_not_help(machine: Machine, tmp_path: Path) -> None:
    """Where apt has no Python that artf runs on, no compiler and no Bazel are installed."""
    machine.user(0)
    log = tmp_path / "log"
    python = f"{machine.bin}/python3"
    made = f"printf '#!{shutil.which('sh')}\\necho 3.5\\n' >{python}"
    install = f"{made}; {shutil.which('chmod')} +x {python}"
    machine.says("apt-get", f'echo "$@" >>{log}; [ "$1" = update ] || {{ {install}; }}')
    done = machine.run("quickstart")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"artf: Python 3.9 or newer ({python} is 3.5) is missing; "
        "put one of a module, conda or pyenv on PATH"
    )
    assert log.read_text().splitlines() == [
        "update -qq",
        "install -y -qq --no-install-recommends python3",
    ]


@pytest.mark.parametrize(
    ("program", "answer", "named"),
    [
        ("uname", "case $1 in -s) echo Darwin;; -m) echo arm64;; esac", "this is Darwin"),
        ("uname", "case $1 in -s) echo Linux;; -m) echo aarch64;; esac", "this machine is aarch64"),
        ("getconf", "echo unknown variable >&2; exit 1", "the C library here is another (musl?)"),
    ],
)
def test_another_platform_is_one_line(
    machine: Machine, program: str, answer: str, named: str
) -> None:
    machine.says(program, answer)
    assert machine.refuses("patches", "list") == [
        f"artf: the wheel is for Linux on x86-64 with glibc, and {named}; use such a Linux, as "
        "Debian 12, in a virtual machine, a container or on another host"
    ]


def test_a_python_too_old_for_uv_is_named(machine: Machine) -> None:
    machine.distribution("rocky8")
    machine.python("2.7", "python")
    machine.tools()
    python = f"Python 3.9 or newer ({machine.bin}/python is 2.7)"
    assert machine.refuses("build") == [
        f"artf: {python} is missing; without root: put one of a module, conda or pyenv on PATH",
        f"artf: missing on this distribution: {python}; as root run: dnf install -y python3.11",
    ]


def test_a_newer_python_goes_before_one_that_has_to_get_one(machine: Machine) -> None:
    """RHEL 8's own is 3.6: by that one uv gets another. Which one the wheel has, uv sees to."""
    machine.distribution("rocky8")
    machine.python("3.8", "python3.8")
    machine.tools()
    assert machine.takes("build") == "python3.8"
    machine.python("3.6")
    assert machine.takes("build") == "python3"
    machine.python("3.12", "python3.12")
    assert machine.takes("doctor") == "python3.12"
    assert machine.takes("build") == "python3.12"


@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor",),
        ("--help",),
        ("build", "--help"),
        ("build", "--container"),
        ("test", "--only", "lint"),
    ],
)
def test_what_builds_nothing_needs_python_alone(machine: Machine, arguments: tuple[str]) -> None:
    said = machine.refuses(*arguments)
    assert said[-1].endswith(" python3") and len(said) == 2
    machine.python("3.13")
    assert machine.takes(*arguments) == "python3"


def test_variables_name_what_is_not_on_the_path(machine: Machine) -> None:
    machine.python("3.11")
    machine.tools("g++")
    machine.says("conda-gcc", "")
    assert machine.takes("build", CC="conda-gcc") == "python3"
    said = machine.refuses("build", CC="no-such-gcc")[-1]
    compiler = "g++ (CC is no-such-gcc, which compiles no C++)"
    assert f"missing on Debian GNU/Linux 12 (bookworm): {compiler}; as root" in said
    # The C compiler alone.
    machine.says("gcc", "exit 1")
    assert "(CC is gcc, which compiles no C++)" in machine.refuses("build", CC="gcc")[-1]


@pytest.mark.parametrize(
    "shell", [name for name in ("dash", "bash", "busybox") if shutil.which(name)]
)
def test_it_takes_less_than_two_seconds(machine: Machine, shell: str) -> None:
    """The best of three, so that a busy machine does not count."""
    machine.distribution("rocky9")
    words = [shell, "sh"] if shell == "busybox" else [shell]
    words = [str(shutil.which(words[0])), *words[1:], str(PREFLIGHT)]
    seconds = []
    for arguments in [(str(machine.root), "quickstart")] * 3:
        begin = time.monotonic()
        env = {"PATH": str(machine.bin)}
        done = subprocess.run([*words, *arguments], env=env, capture_output=True, text=True)
        seconds.append(time.monotonic() - begin)
        assert done.stderr.endswith(f"{COMMANDS['dnf']}\n")
    assert min(seconds) < 2


def _pythons() -> list[Path]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return [path for path in root.glob("versions/*/bin/python") if path.exists()]


def _version(python: Path) -> tuple[int, ...]:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    said = subprocess.run([python, "-c", code], capture_output=True, text=True).stdout
    return tuple(int(part) for part in said.split("."))


def test_every_python_of_this_machine_is_judged_right(machine: Machine) -> None:
    """For real: 2.7 and 3.6 among them where pyenv has them."""
    pythons = {_version(path): path for path in _pythons()}
    if not pythons:
        pytest.skip("no pyenv here that has Pythons")
    machine.tools()
    start = REPO / "scripts/artf_cli/start.py"
    for version, path in pythons.items():
        (machine.bin / "python3").unlink(missing_ok=True)
        (machine.bin / "python3").symlink_to(path)
        if version >= (3, 6):
            assert machine.takes("doctor") == "python3"
            if version >= (3, 9):
                continue
            # By uv, on a newer one.
            done = subprocess.run([path, start, "--help"], capture_output=True, text=True)
            assert done.returncode == 0, (version, done.stderr)
            assert done.stdout.startswith("Usage: artf "), version
            continue
        assert f"python3 is {version[0]}.{version[1]})" in machine.refuses("doctor")[-1]
        done = subprocess.run([path, start], capture_output=True, text=True)
        assert done.returncode == 1
        assert done.stderr.startswith(f"artf: Python {version[0]}.{version[1]}.")
        assert done.stderr.endswith(" is too old; use Python 3.9 or newer\n")


def test_the_launcher_goes_on_to_the_command_line() -> None:
    done = subprocess.run([REPO / "scripts/artf", "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: artf ")


def test_a_wheel_that_nothing_here_runs_is_refused_before_the_build(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def built(*_: object) -> None:
        raise AssertionError("it builds")

    monkeypatch.setattr(build, "build", built)

    def found(version: str) -> Path:
        raise FetchError(f"there is no {version}", "check the network")

    monkeypatch.setattr(uv, "need_python", found)
    result = CliRunner().invoke(cli.main, ["quickstart", "--python", "cp39"])
    assert isinstance(result.exception, ArtfError)
    assert str(result.exception) == (
        "no Python 3.9 here, and there is no 3.9; check the network, or put it on PATH (of a "
        "module, conda or pyenv), or choose another by --python"
    )
    with pytest.raises(ArtfError, match=r"no Python 3\.9 here"):
        testing.run(("recv",), testing.Needs("tensorflow-cpu", "cp39"), ())
    result = CliRunner().invoke(cli.main, ["bench", "train", "--python", "cp39"])
    assert isinstance(result.exception, ArtfError)
    # That one only builds.
    with pytest.raises(AssertionError, match="it builds"):
        CliRunner().invoke(cli.main, ["build", "--python", "cp39"], catch_exceptions=False)


@pytest.mark.parametrize(("name", "family"), [(n, f) for n, (_, f) in DISTRIBUTIONS.items()])
def test_the_installer_has_the_same_words(machine: Machine, name: str, family: str) -> None:
    machine.distribution(name)
    compiler = {"apt": "g++", "pacman": "gcc"}.get(family, "gcc-c++")
    install = system.families()[family][1]
    said = system.how_to_install(["g++", "valgrind"], machine.root)
    if family == "apt":
        assert said == f"as root run: {install} g++ valgrind"
    else:
        assert said == f"install what Debian calls valgrind; as root run: {install} {compiler}"
        bazel = system.how_to_install(["bazel-bootstrap"], machine.root)
        assert bazel == "put bazelisk, which is one file, on PATH"
    assert system.cure("compiler", machine.root).endswith(f"; as root run: {install} {compiler}")


def test_two_installers_go_one_after_the_other(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As suites do that run side by side: of two apt-get at once one fails."""
    locked = tmp_path / "locked"
    for name in ("sleep", "rmdir"):
        (machine.bin / name).symlink_to(str(shutil.which(name)))
    machine.says("apt-get", f"mkdir {locked} || exit 100; sleep 0.2; rmdir {locked}")
    monkeypatch.setenv("PATH", str(machine.bin))
    monkeypatch.setenv("ARTF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(system, "family", lambda *_: system.APT)
    with futures.ThreadPoolExecutor() as pool:
        both = [pool.submit(system.apt_install, "a tool", [name]) for name in ("a", "b")]
        assert [each.result() for each in both] == [None, None]
