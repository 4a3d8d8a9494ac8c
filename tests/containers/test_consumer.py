"""The wheel where nothing else of ours is: a bare Debian, pip, and a program of the user's."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from artf_cli import build
from artf_cli.containers.engine import Engine
from artf_cli.containers.images import build_wheel
from artf_cli.paths import DIST
from common.own_engine import OwnEngine

pytestmark = pytest.mark.timeout(3600)

PROGRAM = Path(__file__).with_name("programs") / "consumer.py"
SUM = (2**20 - 1) * 2**19
INSTALL = "apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv"


def consume(own: OwnEngine, image: str, wheel: Path, python: str, glibc: str) -> None:
    """Installs, imports, trains a step over both protocols, and uninstalls, as a user."""
    own.load_base(image)
    with own.run_online(image) as machine:
        machine.run(f"{INSTALL} && useradd --create-home user")
        said = machine.run("ldd --version && python3 --version").stdout
        assert f"GLIBC {glibc}" in said
        assert f"Python {python}." in said
        machine.copy_in(wheel, "/home/user/")
        machine.copy_in(PROGRAM, "/home/user/")
        home = "/home/user"
        pip = "venv/bin/pip --disable-pip-version-check"
        machine.run("python3 -m venv venv && venv/bin/pip -q install -U pip", "user", home)
        machine.run(f"{pip} -q install ./{wheel.name}", "user", home)
        assert "No broken requirements" in machine.run(f"{pip} check", "user", home).stdout
        done = machine.run("venv/bin/python consumer.py", "user", home, seconds=120)
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["file"].startswith("/home/user/venv/")
        assert found["grpc+ar"] == {"sum": SUM, "path": "shm"}
        assert found["grpc"] == {"sum": SUM, "path": "none"}
        machine.run(f"{pip} -q uninstall -y tensorflow-cpu", "user", home)
        left = "find venv -path '*/site-packages/tensorflow/*' -not -name '*.pyc' -type f"
        assert machine.run(left, "user", home).stdout == ""
        gone = machine.run("venv/bin/python -c 'import tensorflow.python'", "user", home, False)
        assert gone.returncode != 0
        assert "ModuleNotFoundError" in gone.stderr


@pytest.mark.slow
def test_on_debian_12(own_engine: OwnEngine) -> None:
    wheel = Path(os.environ["ARTF_WHEEL"])
    if "-cp311-" not in wheel.name:
        pytest.skip(f"Debian 12 has Python 3.11, {wheel.name} is for another")
    consume(own_engine, "debian:bookworm-slim", wheel, "3.11", "2.36")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("image", "tag", "python", "glibc"),
    [
        ("debian:bullseye-slim", "cp39", "3.9", "2.31"),
        ("debian:bookworm-slim", "cp311", "3.11", "2.36"),
    ],
)
def test_the_wheel_of_the_container_on_an_older_host(
    own_engine: OwnEngine,
    engine: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    image: str,
    tag: str,
    python: str,
    glibc: str,
) -> None:
    for base in ("debian:bookworm-slim", "debian:bullseye-slim"):
        own_engine.load_base(base)
    # The wheels of this tree's dist/ are of another compiler, and other tests use them.
    monkeypatch.setattr(build, "DIST", tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in DIST.glob("*")}
    wheel = build_wheel(engine, "tensorflow-cpu", tag, {})
    found = re.search(r"manylinux_2_(\d+)_x86_64", wheel.name)
    assert found is not None
    assert int(found.group(1)) <= 31
    consume(own_engine, image, wheel, python, glibc)
    assert {path.name: path.stat().st_mtime_ns for path in DIST.glob("*")} == before
