"""README's commands, as printed there, on Debians that know nothing of us."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from artf_cli.bench.train import LEAST_ACCURACY
from artf_cli.paths import REPO, cache_dir
from common import managed_python
from common.own_engine import Machine, OwnEngine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * 3600)]

IMAGE = "debian:bookworm"
_LIMIT_S = 5400
#: All that a user finds who is not root.
_TOOLS = "g++ git bazel-bootstrap python3 ca-certificates"
_INSTALL = "apt-get update -qq && apt-get install -y -qq --no-install-recommends"


def readme_commands() -> list[str]:
    """The lines of the first shell block that follows `Two commands` in the README."""
    text = (REPO / "README.md").read_text()
    found = re.search(r"^Two commands.*?^```sh\n(.*?)^```", text, re.M | re.S)
    assert found is not None
    return found.group(1).splitlines()


def test_the_readme_has_two_commands() -> None:
    assert readme_commands() == ["scripts/artf quickstart", "scripts/artf test"]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean clone; files that are not committed are not in it."""
    folder = tmp_path_factory.mktemp("clean") / "repo"
    subprocess.run(["git", "clone", "-q", str(REPO), str(folder)], check=True)
    return folder


def keep(name: str, text: str) -> None:
    folder = Path(os.environ.get("ARTF_KEEP_LOGS") or cache_dir() / "logs")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"clean-machine-{name}.log").write_text(text)


def give_clone(machine: Machine, user: str) -> None:
    """Makes the ordinary user, and /work/repo, a clone that is `user`'s own."""
    machine.run("useradd --create-home user && mkdir /work && cp -r /repo /work/repo")
    machine.run(f"chown -R {user} /work")


def follow(machine: Machine, user: str, name: str) -> list[str]:
    """Runs README's commands; what root must run for the user is run, and returned."""
    asked: list[str] = []
    log = ""
    for command in readme_commands():
        while True:
            begin = time.monotonic()
            done = machine.run(command, user, "/work/repo", False, _LIMIT_S)
            log += f"{user}$ {command}\n{done.stdout}{done.stderr}"
            log += f"[status {done.returncode}, {time.monotonic() - begin:.0f} s]\n"
            keep(name, log)
            if done.returncode == 0:
                break
            last = (done.stderr.strip().splitlines() or [""])[-1]
            _, found, wanted = last.partition("as root run: ")
            assert found and user != "root" and len(asked) < 5, log[-3000:]
            asked.append(wanted)
            machine.run(wanted)
    assert re.search(r"^\d+ passed, 0 failed", log, re.M), log[-3000:]
    return asked


@pytest.mark.parametrize(
    "user",
    [pytest.param(user, marks=pytest.mark.part(f"clean-{user}")) for user in ("root", "user")],
)
def test_readme_on_a_clean_machine(own_engine: OwnEngine, clone: Path, user: str) -> None:
    own_engine.load_base(IMAGE)
    with own_engine.run_online(IMAGE, "--volume", f"{clone}:/repo:ro") as machine:
        give_clone(machine, user)
        asked = follow(machine, user, user)
    assert len(asked) == (0 if user == "root" else 1), asked


def bare(own_engine: OwnEngine, image: str, clone: Path, folder: Path) -> Machine:
    """A machine with the clone as /repo. A Python that it lacks comes by uv from a mirror, in
    `folder`, that stands for upstream's releases."""
    own_engine.load_base(image)
    archive = managed_python.packed()
    (folder / "python.tar.gz").write_bytes(archive)
    listed = managed_python.listed(archive, "file:///mirror/python.tar.gz")
    (folder / "pythons.json").write_text(listed)
    # pytest's folders are for who made them alone.
    folder.chmod(0o755)
    words = ["--volume", f"{clone}:/repo:ro", "--volume", f"{folder}:/mirror:ro"]
    words += ["--env", "UV_PYTHON_DOWNLOADS_JSON_URL=/mirror/pythons.json"]
    return own_engine.run_online(image, *words)


@pytest.mark.part("systems")
@pytest.mark.parametrize(
    ("image", "user"),
    [
        ("debian:unstable", "root"),
        ("debian:trixie", "root"),
        ("debian:trixie", "user"),
        (IMAGE, "user"),
    ],
)
def test_quickstart_on_each_debian(
    own_engine: OwnEngine, clone: Path, tmp_path: Path, image: str, user: str
) -> None:
    """The newer ones have none of the wheel's Pythons. None has protobuf."""
    with bare(own_engine, image, clone, tmp_path) as machine:
        give_clone(machine, user)
        if user != "root":
            machine.run(f"mkdir -p /usr/share/man/man1; {_INSTALL} {_TOOLS}")
        begin = time.monotonic()
        command = f"{readme_commands()[0]} --json"
        done = machine.run(command, user, "/work/repo", False, _LIMIT_S)
        seconds = time.monotonic() - begin
        tools = "g++ --version | head -1; python3 --version; ls ~/.cache/artf/pythons"
        tools += "; dpkg-query -W -f '${Package} ${Version}\\n' libprotoc-dev protobuf-compiler"
        found = machine.run(tools, user, check=False).stdout
    said = f"{done.stdout}{done.stderr}[status {done.returncode}, {seconds:.0f} s]\n{found}"
    keep(f"{image.partition(':')[2]}-{user}", said)
    assert done.returncode == 0, said[-3000:]
    runs = json.loads(done.stdout.splitlines()[-1])["runs"]
    assert {run["protocol"] for run in runs} == {"grpc", "grpc+ar"}
    assert all(run["accuracy"] >= LEAST_ACCURACY for run in runs), runs
    assert re.search(r"^artf: Bazel [47]\.", said, re.M), said
    # dpkg-query names a package here only where it is installed.
    assert "proto" not in found, found


@pytest.mark.part("two-bazels")
def test_two_bazels_make_the_same_wheel(own_engine: OwnEngine, clone: Path, tmp_path: Path) -> None:
    """Debian unstable's, and Debian 13's on the same system: one compiler, caches of their own."""
    made: dict[str, str] = {}
    log = ""
    with bare(own_engine, "debian:unstable", clone, tmp_path) as machine:
        machine.run(f"mkdir -p /usr/share/man/man1; {_INSTALL} {_TOOLS}")
        machine.run(
            "sed 's/ sid / trixie /' /etc/apt/sources.list > /etc/apt/sources.list.d/13.list"
        )
        for major, package in (("7", "bazel-bootstrap"), ("4", "bazel-bootstrap/trixie")):
            machine.run(f"{_INSTALL} --allow-downgrades {package}")
            # The same folder: what is compared is Bazel alone.
            machine.run("rm -rf /work && cp -r /repo /work")
            done = machine.run(
                f"ARTF_CACHE=/cache-{major} scripts/artf build", "root", "/work", False, _LIMIT_S
            )
            log += f"{done.stdout}{done.stderr}[status {done.returncode}]\n"
            keep("two-bazels", log)
            assert done.returncode == 0, log[-3000:]
            assert re.search(rf"^artf: Bazel {major}\.", done.stdout + done.stderr, re.M), log
            made[major] = machine.run("sha256sum dist/*.whl", folder="/work").stdout
            log += made[major]
            keep("two-bazels", log)
    assert made["7"].count("\n") == 1
    assert made["7"] == made["4"]
