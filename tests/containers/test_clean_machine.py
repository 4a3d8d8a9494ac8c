"""README's two commands, as printed there, on a Debian that knows nothing of us."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from artf_cli.paths import REPO, cache_dir
from common.own_engine import Machine, OwnEngine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * 3600)]

IMAGE = "debian:bookworm"
_LIMIT_S = 5400


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
        machine.run("useradd --create-home user && mkdir /work && cp -r /repo /work/repo")
        machine.run(f"chown -R {user} /work")
        asked = follow(machine, user, user)
    assert len(asked) == (0 if user == "root" else 1), asked
