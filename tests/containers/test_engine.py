"""Finding an engine, and what a user reads when there is none that works: over fake clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from artf_cli import build, paths
from artf_cli.containers import bases, engine, images
from artf_cli.containers.engine import Engine
from artf_cli.errors import ArtfError
from common.ar import eventually
from common.own_engine import OwnEngine, refuse, why_not

WHEEL = "tensorflow_cpu-2.14.1+ar.1-cp311-cp311-manylinux_2_31_x86_64.whl"
DOWN = "Cannot connect to the Docker daemon at unix:///x.sock. Is the docker daemon running?"
DENIED = (
    "Got permission denied while trying to connect to the Docker daemon socket at "
    "unix:///x.sock: Get http://x/version: dial unix /x.sock: connect: permission denied"
)
FULL = "#9 ERROR: failed to copy: write /x: no space left on device"


class Fake:
    """A client on a PATH of its own that answers by the first words it is called with."""

    def __init__(self, folder: Path, name: str = "docker") -> None:
        self.folder = folder
        self.path = folder / name
        self._answers: dict[str, Any] = {}
        folder.mkdir(exist_ok=True)
        self.says("--version", f"{name} version 20.10.24, build 1")

    def says(self, words: str, text: str = "", error: str = "", status: int = 0) -> Fake:
        self._answers[words] = [text, error, status]
        self.path.write_text(
            f"#!{sys.executable}\nimport os, sys\nfrom pathlib import Path\n"
            f"answers = {self._answers!r}\n"
            "said = ' '.join(sys.argv[1:])\n"
            f"Path({str(self.path)!r} + '.calls').open('a').write(said + '\\n')\n"
            "for words, (text, error, status) in answers.items():\n"
            "    if said.startswith(words):\n"
            "        out = said.partition('type=local,dest=')[2].split(' ')[0]\n"
            "        if text.startswith('PARTIAL '):\n"
            "            Path(out, text.split()[1]).write_bytes(b'half')\n"
            "        print(text)\n        print(error, file=sys.stderr)\n        sys.exit(status)\n"
            "sys.exit(f'unexpected: {said}')\n"
        )
        self.path.chmod(0o755)
        return self

    def calls(self) -> list[str]:
        return Path(f"{self.path}.calls").read_text().splitlines()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("ARTF_ENGINE", raising=False)
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


def working(folder: Path) -> Fake:
    return (
        Fake(folder)
        .says("version", "20.10.24")
        .says("compose version", error="unknown command", status=1)
    )


def test_no_engine(folder: Path) -> None:
    with pytest.raises(ArtfError) as caught:
        engine.find()
    assert caught.value.what == "there is no docker or podman on PATH"
    assert "apt-get install -y docker.io docker-compose" in caught.value.cure


@pytest.mark.parametrize(
    ("said", "cure"),
    [(DOWN, "systemctl start docker"), (DENIED, "usermod -aG docker ")],
)
def test_an_engine_that_does_not_answer(folder: Path, said: str, cure: str) -> None:
    Fake(folder).says("version", error=said, status=1)
    with pytest.raises(ArtfError) as caught:
        engine.find()
    assert str(folder / "docker") in caught.value.what
    assert said in caught.value.what
    assert cure in caught.value.cure


def test_a_new_client_without_buildx_is_passed_over(folder: Path, tmp_path: Path) -> None:
    new = Fake(tmp_path / "new").says("--version", "Docker version 28.2.2, build 2")
    new.says("buildx", error="unknown command", status=1)
    os.environ["PATH"] = f"{new.folder}:{folder}"
    with pytest.raises(
        ArtfError, match=r"buildx, which is missing; install .*docker-buildx-plugin"
    ):
        engine.find()
    old = working(folder)
    assert engine.find() == Engine("docker", old.path, "20.10.24", ())
    new.says("buildx", "v0.20").says("version", "28.2.2").says("compose version", "v2.30")
    assert engine.find() == Engine("docker", new.path, "28.2.2", (str(new.path), "compose"))


def test_podman_stands_in_for_an_engine_that_is_down(folder: Path) -> None:
    Fake(folder).says("version", error=DOWN, status=1)
    podman = Fake(folder, "podman").says("info", "4.3.1")
    compose = Fake(folder, "podman-compose").says("version", "podman-composer version  1.0.3")
    with pytest.raises(ArtfError, match=r"podman has no compose here; .* 1\.1 or newer"):
        engine.find().need_compose()
    compose.says("version", "podman-compose version 1.6.0\npodman version 4.3.1")
    found = engine.find()
    assert found == Engine("podman", podman.path, "20.10.24", (str(compose.path),))


def test_the_environment_names_an_engine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    working(folder)
    podman = Fake(folder, "podman").says("info", "4.3.1")
    monkeypatch.setenv("ARTF_ENGINE", "podman")
    assert engine.find().path == podman.path
    monkeypatch.setenv("ARTF_ENGINE", str(folder / "absent"))
    with pytest.raises(ArtfError, match="absent is no docker or podman"):
        engine.find()


def test_compose_is_asked_for_by_package(folder: Path) -> None:
    working(folder)
    with pytest.raises(ArtfError, match=r"no compose here; .* install -y docker-compose"):
        engine.find().need_compose()


@pytest.mark.parametrize(
    ("said", "what", "cure"),
    [
        (FULL, "no space left on device", "make room: `docker system df`"),
        (
            "#3 ERROR: failed to do request: Head x: dial tcp: lookup r: no such host",
            "no such host",
            "check the network and the proxy of the engine",
        ),
        (
            "dial unix /run/podman/podman.sock: connect: connection refused",
            "podman.sock",
            "systemctl start docker",
        ),
        (
            "#2 ERROR: Head https://registry-1.docker.io/v2/: dial tcp 1.2.3.4:443: connect: "
            "connection refused",
            "registry-1",
            "check the network and the proxy of the engine",
        ),
        (
            "#7 0.4 Could not connect to 127.0.0.1:9 (127.0.0.1). - connect (111: Connection "
            "refused)\n#7 ERROR: exit code: 100",
            "127.0.0.1:9",
            "ARTF_BUILD_NETWORK=host",
        ),
        (
            "#7 0.4 WARNING: ProxyError('Cannot connect to proxy.', [Errno 111] Connection refused",
            "Cannot connect to proxy",
            "ARTF_BUILD_PROXY",
        ),
        (
            "#9 12.1 a test's server: connection refused\n#9 ERROR: exit code: 1",
            "#9 ERROR: exit code: 1",
            "read its log /x/log",
        ),
        (
            "#18 9.1 artf: no place has the source; check the network\nexit code: 1",
            "no place has the source; check the network",
            "read its log /x/log",
        ),
    ],
)
def test_a_failed_build_is_one_line_with_a_cure(said: str, what: str, cure: str) -> None:
    error = engine.explain(said, "docker", "building wheel failed", Path("/x/log"))
    assert error.what.startswith("building wheel failed: ")
    assert what in error.what
    assert "\n" not in str(error)
    assert cure in error.cure


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dist/ with an older wheel, and a cache of the test's own."""
    dist = tmp_path / "dist"
    dist.mkdir()
    (dist / WHEEL.replace("2_31", "2_34")).write_bytes(b"older")
    monkeypatch.setattr(build, "DIST", dist)
    monkeypatch.setattr(images, "DISK_NEEDED", 0)
    monkeypatch.setenv("ARTF_CACHE", str(tmp_path / "cache"))
    for name in ("APT_MIRROR", "CA", "PIP_CONF", "BUILD_NETWORK", "BUILD_PROXY"):
        monkeypatch.delenv(f"ARTF_{name}", raising=False)
    return dist


def with_bases(fake: Fake, tmp_path: Path) -> Fake:
    image = {"Size": 5, "RepoDigests": ["debian@sha256:12"]}
    fake.says("inspect", json.dumps([image])).says("info", str(tmp_path))
    return fake.says("system df", "Images:5GB\nBuild Cache:0B")


def test_a_wheel_comes_out_of_the_container(folder: Path, tree: Path, tmp_path: Path) -> None:
    fake = with_bases(working(folder), tmp_path).says("build", f"PARTIAL {WHEEL}")
    wheel = images.build_wheel(engine.find(), "tensorflow-cpu", "cp311", {})
    assert wheel == tree / WHEEL
    assert [path.name for path in tree.iterdir()] == [WHEEL]
    (command,) = [call for call in fake.calls() if call.startswith("build ")]
    assert "--target wheel" in command
    assert "--build-arg BASE=debian@sha256:12" in command
    assert "--build-arg WHEEL_PYTHON=cp311" in command
    assert "--secret" not in command


@pytest.mark.parametrize("error", [FULL, "#9 ERROR: exit code: 1"])
def test_a_failed_build_leaves_dist_as_it_was(
    folder: Path, tree: Path, tmp_path: Path, error: str
) -> None:
    with_bases(working(folder), tmp_path).says("build", f"PARTIAL {WHEEL}", error, 1)
    before = {path.name: path.read_bytes() for path in tree.iterdir()}
    with pytest.raises(ArtfError, match="building wheel failed: #9 ERROR"):
        images.build_wheel(engine.find(), "tensorflow-cpu", "cp311", {})
    assert {path.name: path.read_bytes() for path in tree.iterdir()} == before
    assert not list((tmp_path / "cache").glob("wheel-*"))


def test_a_full_disk_is_named_before_the_build(
    folder: Path, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_bases(working(folder), tmp_path)
    monkeypatch.setattr(images, "DISK_NEEDED", 1 << 60)
    with pytest.raises(ArtfError, match=r"MiB free, images .* need .* make room: `docker system"):
        images.build_wheel(engine.find(), "tensorflow-cpu", "cp311", {})


def test_a_rebuild_needs_less_of_the_disk(
    folder: Path, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = with_bases(working(folder), tmp_path).says("build", f"PARTIAL {WHEEL}")
    fake.says("system df", "Images:5GB\nBuild Cache:3.1GB")
    monkeypatch.setattr(images, "DISK_NEEDED", 1 << 60)
    monkeypatch.setattr(images, "DISK_NEEDED_AGAIN", 1)
    assert images.build_wheel(engine.find(), "tensorflow-cpu", "cp311", {}) == tree / WHEEL


def test_each_engine_has_its_own_cure_for_a_full_disk() -> None:
    assert "`docker builder prune`" in engine.explain(FULL, "docker", "x").cure
    assert "`podman image prune`" in engine.explain(FULL, "podman", "x").cure


def test_what_a_site_needs_comes_from_the_environment(
    folder: Path, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = with_bases(working(folder), tmp_path).says("build", f"PARTIAL {WHEEL}")
    bundle = tmp_path / "ca.pem"
    bundle.write_text("x")
    for name, value in {
        "ARTF_APT_MIRROR": "http://mirror.example",
        "PIP_INDEX_URL": "http://index.example",
        "http_proxy": "http://proxy.example:1",
        "ARTF_CA": str(bundle),
        "ARTF_BUILD_NETWORK": "host",
    }.items():
        monkeypatch.setenv(name, value)
    images.build_wheel(engine.find(), "tensorflow-cpu", "cp311", {})
    command = fake.calls()[-1]
    assert "--build-arg http_proxy=http://proxy.example:1" in command
    monkeypatch.setenv("ARTF_BUILD_PROXY", "http://inner.example:1")
    images.build_wheel(engine.find(), "tensorflow-cpu", "cp311", {})
    command = fake.calls()[-1]
    for words in (
        "--build-arg APT_MIRROR=http://mirror.example",
        "--build-arg PIP_INDEX_URL=http://index.example",
        "--build-arg http_proxy=http://inner.example:1",
        "--build-arg https_proxy=http://inner.example:1",
        f"--secret id=ca,src={bundle}",
        "--network=host",
    ):
        assert words in command
    monkeypatch.setenv("ARTF_CA", str(tmp_path / "absent"))
    with pytest.raises(ArtfError, match=r"ARTF_CA=.*absent is no file"):
        images.build_wheel(engine.find(), "tensorflow-cpu", "cp311", {})


def bases_toml(digest: str) -> str:
    base = f'image = "debian:x"\ndigest = "{digest}"\n'
    return f"# why\n[BASE]\n{base}[SYSROOT_BASE]\n{base}"


def test_bases_are_pinned_by_the_digest_that_is_known(folder: Path, tmp_path: Path) -> None:
    fake = working(folder)
    file = tmp_path / "bases.toml"
    recorded = f"sha256:{'34' * 32}"
    # Loaded by hand: nothing to pin.
    fake.says("inspect", json.dumps([{"RepoDigests": []}]))
    file.write_text(bases_toml(""))
    assert bases.resolve(engine.find(), ["BASE"], file) == {"BASE": "debian:x"}
    # Pulled from a mirror and named anew: the public name is not there under that digest.
    fake.says("inspect", json.dumps([{"RepoDigests": ["mirror.example/debian@sha256:56"]}]))
    assert bases.resolve(engine.find(), ["BASE"], file) == {"BASE": "debian:x"}
    for repository in ("debian", "docker.io/library/debian"):
        digests = ["mirror.example/debian@sha256:56", f"{repository}@sha256:12"]
        fake.says("inspect", json.dumps([{"RepoDigests": digests}]))
        assert bases.resolve(engine.find(), ["BASE"], file) == {"BASE": "debian@sha256:12"}
    file.write_text(bases_toml(recorded))
    assert bases.resolve(engine.find(), ["BASE"], file) == {"BASE": f"debian@{recorded}"}
    assert f"inspect debian@{recorded}" in fake.calls()


def test_digests_are_recorded_or_the_file_stays(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "bases.toml"
    text = bases_toml("")
    file.write_text(text)
    fake = working(folder).says("pull", error="dial tcp: lookup r: no such host", status=1)
    with pytest.raises(ArtfError, match=r"docker pull failed: .* check the network"):
        bases.record(engine.find(), file)
    assert file.read_text() == text
    fake.says("pull", "x").says("inspect", json.dumps([{"RepoDigests": ["debian@sha256:12"]}]))
    assert bases.record(engine.find(), file) == ["debian:x@sha256:12"] * 2
    assert file.read_text() == text.replace('""', '"sha256:12"')


def test_the_image_is_for_one_python(folder: Path) -> None:
    working(folder)
    wheel = Path(WHEEL.replace("cp311", "cp39"))
    with pytest.raises(ArtfError, match="is for cp39, the image has Python cp311"):
        images.build_runtime(engine.find(), wheel, {})


@pytest.mark.parametrize(
    "arguments", [("quickstart", "--layout", "apart"), ("build", "--pin-bases")]
)
def test_an_option_for_containers_alone_exits_2(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "artf_cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "is for --container" in done.stderr


@pytest.mark.parametrize("command", ["build", "quickstart"])
def test_no_engine_exits_1_with_one_line(command: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "artf_cli", command, "--container"]
    env = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(words, capture_output=True, text=True, env=env)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines() == [
        "artf: there is no docker or podman on PATH; on Debian as root run: "
        "apt-get install -y docker.io docker-compose"
    ]


@pytest.mark.parametrize(("log", "last"), [("why not", "why not"), ("", "its log is empty")])
def test_an_engine_of_our_own_that_does_not_start_says_why_and_is_gone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str, last: str
) -> None:
    script = folder / "unshare"
    script.write_text(f"#!/bin/sh\necho '{log}' >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr(
        OwnEngine, "docker", lambda *_, check: subprocess.CompletedProcess("docker", 1)
    )
    own = OwnEngine(tmp_path / "engine")
    own.folder.mkdir()
    with pytest.raises(RuntimeError, match=f"dockerd does not answer: {last}"):
        own.start()
    assert not own.folder.exists()


@pytest.mark.parametrize(
    ("ci", "told", "outcome"),
    [
        ("true", "", pytest.fail.Exception),
        ("true", "a phone", pytest.skip.Exception),
        ("", "", pytest.skip.Exception),
        ("", "a phone", pytest.skip.Exception),
    ],
)
def test_in_ci_an_engine_that_does_not_start_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, ci: str, told: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("ARTF_NO_ENGINE", told)
    with pytest.raises(outcome, match="it is broken"):
        refuse("it is broken")
    assert ("a phone" in why_not()) == bool(told)


def test_what_a_killed_suite_left_is_removed_and_what_runs_stays(tmp_path: Path) -> None:
    left, used = tmp_path / "engine-left", tmp_path / "engine-used"
    for path in (left, used):
        path.mkdir()
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    rest = subprocess.Popen([*command, f"--exec-root={left}/exec"])
    # A process has its command line only some time after its start.
    assert eventually(OwnEngine(left).processes).keys() == {rest.pid}
    with FileLock(f"{used}.lock"):
        new = OwnEngine.new(tmp_path)
    assert rest.wait(10) == -signal.SIGKILL
    assert not left.exists()
    assert used.exists()
    assert new.folder.parent == tmp_path
    assert new.folder not in (left, used)


def test_the_image_names_carry_the_version() -> None:
    assert images.image_name("runtime", "2.14.1+ar.1") == "ar-tensorflow:2.14.1-ar.1"
    assert images.image_name("quickstart", "2") == "ar-tensorflow-quickstart:2"


def test_no_dockerfile_needs_a_newer_frontend() -> None:
    """podman builds the same files: no syntax line, no heredoc."""
    for path in (paths.REPO / "docker").glob("*.Dockerfile"):
        text = path.read_text()
        assert "# syntax" not in text
        assert "<<" not in text
