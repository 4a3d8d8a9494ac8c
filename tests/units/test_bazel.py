"""Which Bazel a build takes, and what it is told."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from artf_cli import bazel, pins
from artf_cli.bazel import BazelChoice
from artf_cli.errors import ArtfError
from common import npm
from common.index import speak_tls, without_settings

PINNED = pins.load().bazelisk


def test_a_bazel_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARTF_BAZEL", "/bin/true")
    with pytest.raises(ArtfError, match="ARTF_BAZEL=/bin/true is not a Bazel"):
        bazel.find()


@pytest.mark.parametrize(
    ("said", "plain", "told", "chosen"),
    [
        ("bazel 7.4.1", True, True, "7.4.1"),
        ("bazel 9.0.0", False, True, PINNED.bazel),
        ("bazel 3.7.2", False, False, None),
    ],
)
def test_a_bazel_is_taken_by_its_version(
    tmp_path: Path, said: str, plain: bool, told: bool, chosen: str | None
) -> None:
    """Also when it is bazelisk under that name: asked plainly it is too new, told it obeys."""
    other = f"bazel {PINNED.bazel}" if told and not plain else said
    program = tmp_path / "bazel"
    program.write_text(f'#!/bin/sh\n[ -n "$USE_BAZEL_VERSION" ] && echo {other} || echo {said}\n')
    program.chmod(0o755)
    choice = bazel._examine(program, "the test says so")
    assert (choice.version if choice else None) == chosen
    if choice:
        assert bool(choice.env) is not plain


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_build_leaves_no_process(number: int, tmp_path: Path) -> None:
    """A Bazel that hangs stands for a long build; whatever stops artf stops it too."""
    fake = tmp_path / "bazel"
    pid_file = tmp_path / "pid"
    fake.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo bazel 6.5.0 && exit\n'
        f"echo $$ > {pid_file}\nexec sleep 600\n"
    )
    fake.chmod(0o755)
    program = (
        "from artf_cli import bazel, cli\n"
        "bazel.build(bazel.ensure(), '//build:wheel', {})\n"
        "raise SystemExit('the fake Bazel ended')\n"
    )
    env = {**os.environ, "ARTF_BAZEL": str(fake), "ARTF_CACHE": str(tmp_path / "cache")}
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env=env,
        stderr=subprocess.PIPE,
        # A test run in the background of a shell has it ignored, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    limit = time.monotonic() + 30
    while not (pid_file.exists() and pid_file.read_text().strip()):
        assert time.monotonic() < limit
        time.sleep(0.05)
    child = psutil.Process(int(pid_file.read_text()))
    process.send_signal(number)
    process.communicate(timeout=60)
    gone, alive = psutil.wait_procs([child], timeout=30)
    assert gone and not alive


@pytest.fixture(scope="session")
def bazelisk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pinned one, byte for byte, as its package for npm has it."""
    folder = tmp_path_factory.mktemp("bazelisk")
    version = PINNED.url.split("/v")[-1].split("/")[0]
    package = f"@bazel/bazelisk@{version}"
    return npm.program(package, "bazelisk-linux_amd64", PINNED.sha256, folder)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class Nowhere:
    """A machine without a Bazel; all that a build would fetch lies in the folder `mirror`."""

    def __init__(
        self, mirror: Path, address: str, bazelisk: Path, patch: pytest.MonkeyPatch
    ) -> None:
        self.home = mirror.parent / "cache" / "bazelisk"
        self.notes: list[str] = []
        self.asked: list[list[str]] = []
        self.bazelisk = mirror / "bazelisk"
        shutil.copyfile(bazelisk, self.bazelisk)
        self.bazel = mirror / f"bazel/{PINNED.bazel}/bazel-{PINNED.bazel}-linux-x86_64"
        self.bazel.parent.mkdir(parents=True)
        self.bazel.write_text(f"#!/bin/sh\necho bazel {PINNED.bazel}\n")
        there = {"url": f"{address}/bazelisk", "bazel_sha256": pins.sha256_of(self.bazel)}
        manifest = pins.load().model_copy(update={"bazelisk": PINNED.model_copy(update=there)})
        patch.setattr(pins, "load", lambda: manifest)
        patch.setattr(bazel, "note", self.notes.append)
        patch.setattr(bazel, "apt_install", lambda what, packages: self.asked.append(packages))
        for name in list(os.environ):
            if name.startswith("BAZELISK_"):
                patch.delenv(name)
        patch.delenv("ARTF_BAZEL", raising=False)
        patch.setenv("BAZELISK_BASE_URL", f"{address}/bazel")
        patch.setenv("ARTF_CACHE", str(self.home.parent))
        patch.setenv("PATH", str(mirror / "empty"))


@pytest.fixture
def nowhere(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    bazelisk: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Nowhere]:
    """The mirror speaks TLS where a test says so, by an authority that pip is told of."""
    without_settings(monkeypatch, tmp_path)
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    handler = functools.partial(_Quiet, directory=str(mirror))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        scheme = getattr(request, "param", "http")
        if scheme == "https":
            monkeypatch.setenv("PIP_CERT", str(speak_tls(server, tmp_path)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Nowhere(mirror, f"{scheme}://127.0.0.1:{server.server_port}", bazelisk, monkeypatch)
        server.shutdown()


@pytest.mark.parametrize("nowhere", ["https"], indirect=True)
def test_both_are_fetched_with_pips_certificates(
    nowhere: Nowhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bazel.ensure().path.read_bytes() == nowhere.bazel.read_bytes()
    shutil.rmtree(nowhere.home)
    monkeypatch.delenv("PIP_CERT")
    with pytest.raises(ArtfError, match="no Bazel of version 4 to 7"):
        bazel.ensure()
    assert "certificate" in nowhere.notes[-1], nowhere.notes


def test_where_there_is_none_the_pinned_bazelisk_fetches_the_pinned_one(nowhere: Nowhere) -> None:
    assert bazel.find() is None
    choice = bazel.ensure()
    assert (choice.version, choice.env) == (PINNED.bazel, {})
    assert choice.why == "the pinned one, which bazelisk fetched"
    assert choice.path.read_bytes() == nowhere.bazel.read_bytes()
    assert choice.path.is_relative_to(nowhere.home)
    assert nowhere.asked == []
    assert [note for note in nowhere.notes if "(once)" in note] == nowhere.notes[:1]
    # The second time neither is fetched, and it is found by who fetches nothing.
    nowhere.bazelisk.unlink()
    nowhere.bazel.unlink()
    nowhere.notes.clear()
    assert bazel.find() == bazel.ensure() == choice
    assert len(nowhere.notes) == 1
    choice.path.write_text("#!/bin/sh\necho bazel 7.7.1, changed\n")
    with pytest.raises(ArtfError, match=f"pins.toml says .*; delete {nowhere.home} and run again"):
        bazel.find()


def test_a_bazel_with_other_bytes_is_not_run(nowhere: Nowhere) -> None:
    """Then Debian's package is asked for, as where nothing is reached."""
    nowhere.bazel.write_text(f"{nowhere.bazel.read_text()}\n")
    with pytest.raises(ArtfError, match="no Bazel of version 4 to 7"):
        bazel.ensure()
    assert nowhere.asked == [[bazel.PACKAGE]]
    assert nowhere.notes[-1].startswith(f"bazelisk got no Bazel {PINNED.bazel}: ")
    assert "need sha256=" in nowhere.notes[-1], nowhere.notes


def test_a_bazelisk_out_of_reach_is_said(nowhere: Nowhere) -> None:
    nowhere.bazelisk.unlink()
    with pytest.raises(ArtfError, match="no Bazel of version 4 to 7"):
        bazel.ensure()
    assert nowhere.asked == [[bazel.PACKAGE]]
    assert nowhere.notes[-1].startswith("bazelisk is out of reach: http://127.0.0.1:")
    assert nowhere.notes[-1].endswith("/bazelisk: 404 File not found")


def test_a_bazelisk_with_other_bytes_is_an_error(nowhere: Nowhere) -> None:
    nowhere.bazelisk.write_bytes(b"other")
    with pytest.raises(ArtfError, match=f"pins.toml says {PINNED.sha256}"):
        bazel.ensure()


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of what the last build told a Bazel that does nothing; see `arguments`."""
    fake = tmp_path / "fake"
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/told\n')
    fake.chmod(0o755)
    monkeypatch.setenv("ARTF_CACHE", str(tmp_path / "cache"))
    for name in (bazel.JOBS, bazel.BAZELRC, "CC", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    system = tmp_path / "system"
    system.mkdir()
    for name in ("gcc", "sh"):
        (system / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setattr(bazel, "_SYSTEM", (system,))
    monkeypatch.setenv("PATH", str(system))
    return tmp_path / "told"


def arguments(told: Path, version: str = "6.5.0") -> list[str]:
    bazel.build(BazelChoice(told.with_name("fake"), version, ""), "//build:wheel", {})
    return told.read_text().splitlines()


def test_a_build_has_the_users_jobs_and_rc(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = arguments(told)
    assert not any("local_cpu" in each or "action_env" in each for each in plain)
    own = told.with_name("my.bazelrc")
    own.touch()
    monkeypatch.setenv(bazel.JOBS, "3")
    monkeypatch.setenv(bazel.BAZELRC, str(own))
    found = arguments(told)
    assert "--local_cpu_resources=3" in found
    files = [each for each in found if each.startswith("--bazelrc=")]
    assert [Path(each.partition("=")[2]).name for each in files] == ["bazelrc", "my.bazelrc"]
    assert found.index(files[-1]) < found.index("build")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (bazel.JOBS, "0", "ARTF_JOBS=0 is no number of compilers"),
        (bazel.JOBS, "all", "ARTF_JOBS=all is no number of compilers"),
        (bazel.JOBS, "\uff13", "ARTF_JOBS=\uff13 is no number of compilers"),
        (bazel.BAZELRC, "~nosuchuser/rc", "ARTF_BAZELRC=~nosuchuser/rc is no file"),
        ("CC", "ccache gcc", "CC=ccache gcc is more than a program"),
        (bazel.BAZELRC, "/no/such/rc", "ARTF_BAZELRC=/no/such/rc is no file"),
    ],
)
def test_a_wrong_setting_is_named(
    told: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ArtfError, match=said):
        arguments(told)


def test_a_compiler_of_a_module_finds_what_its_module_has(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its assembler on PATH, its libraries by LD_LIBRARY_PATH; the system's needs neither."""

    def passed(**variables: str) -> list[str]:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return [each for each in arguments(told) if "action_env" in each]

    system, module, links = (told.with_name(name) for name in ("system", "module", "links"))
    library = module / "lib/libstdc++.so.6"
    library.parent.mkdir(parents=True)
    library.touch()

    def answers(cxx: Path | str, sysroot: Path | str = "") -> None:
        answer = f'case $1 in *sysroot) echo "{sysroot}";; *) echo "{cxx}";; esac'
        (module / "gcc").write_text(f"#!/bin/sh\n{answer}\n")
        (module / "gcc").chmod(0o755)

    answers(library)
    links.mkdir()
    (links / "gcc").symlink_to(system / "gcc")
    monkeypatch.setattr(bazel, "_SYSTEM", (system, (links / "gcc").resolve().parent))
    assert passed(LD_LIBRARY_PATH="/opt/lib", PATH=f"{system}:{module}") == []
    assert passed(PATH=f"{links}:{system}") == []
    path = f"{module}:{system}"
    assert passed(PATH=path) == [
        f"--action_env=PATH={path}",
        f"--host_action_env=PATH={path}",
        f"--action_env=LD_LIBRARY_PATH={library.parent}:/opt/lib",
        f"--host_action_env=LD_LIBRARY_PATH={library.parent}:/opt/lib",
    ]
    # In the root of another system.
    answers(library, module)
    assert [each.partition("=")[2] for each in passed()][-1] == "LD_LIBRARY_PATH=/opt/lib"
    # One without a C++ library of its own says the bare name.
    answers("libstdc++.so.6", told.with_name("elsewhere"))
    found = passed(PATH=str(system), CC=str(module / "gcc"), LD_LIBRARY_PATH="")
    assert found == [f"--action_env=PATH={system}", f"--host_action_env=PATH={system}"]


def test_bazel_7_has_the_rules_that_debian_brings(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's tells of them as modules, which a WORKSPACE does not see."""
    rc = told.with_name("rc")
    rc.write_text(
        "# common --override_module=platforms=/gone\n"
        "common --override_module=rules_cc=/usr/share/bazel/rules/cc\n"
    )
    monkeypatch.setattr(bazel, "_DEBIANS_RC", rc)
    monkeypatch.setattr(bazel, "_SYSTEM", (told.parent,))

    def overridden(version: str) -> list[str]:
        found = arguments(told, version)
        return [each for each in found if each.startswith("--override_repository")]

    assert overridden("7.7.1") == ["--override_repository=rules_cc=/usr/share/bazel/rules/cc"]
    assert overridden("6.5.0") == []
    assert [each.split("=")[1] for each in overridden("4.2.3")] == ["rules_cc", "rules_java"]
    # Upstream's, or one of bazelisk's, is none of Debian's.
    monkeypatch.setattr(bazel, "_SYSTEM", ())
    assert overridden("7.7.1") == []
