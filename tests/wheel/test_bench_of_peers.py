"""`bench serve` and `bench recv --peer` as a user runs them, both on this machine's loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from artf_cli.paths import REPO

ARTF = str(REPO / "scripts/artf")


@pytest.fixture(scope="module")
def served(wheel: Path) -> Iterator[dict[str, str]]:
    """The environment in which the printed command runs; `PEER` is the address that it names."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [ARTF, "bench", "serve", "--listen", "127.0.0.1:0", "--wheel", str(wheel)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        first, command = process.stdout.readline(), process.stdout.readline().split()
        assert first.startswith(f"{wheel.name} is served at 127.0.0.1:")
        assert command[1:5] == ["scripts/artf", "bench", "recv", "--peer"]
        name, _, token = command[0].partition("=")
        yield {**env, name: token, "PEER": command[5]}
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 128 + signal.SIGTERM


def recv(env: dict[str, str], wheel: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [ARTF, "bench", "recv", "--peer", env["PEER"], "--wheel", str(wheel), *words]
    return subprocess.run(command, env=env, capture_output=True, text=True)


def test_rows_and_the_record_of_both_hosts(served: dict[str, str], wheel: Path) -> None:
    words = ["--sizes", "4,1MiB", "--rounds", "1", "--cold-rounds", "0", "--json"]
    done = recv(served, wheel, *words)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert [(row["bytes"], row["protocol"], row["fabric"]) for row in said["rows"]] == [
        (size, *way) for size in (4, 1 << 20) for way in (("grpc", "tcp"), ("grpc+ar", "shm"))
    ]
    assert all(row["median_us"] > 10 and row["cpu_us_per_step"] > 10 for row in said["rows"])
    made = said["record"]
    assert served["ARTF_PEER_TOKEN"] not in done.stdout
    for facts in made["hosts"].values():
        assert facts["wheel"]["file"] == wheel.name
    (line,) = made["said"]["grpc+ar"]["worker:0"]
    assert line.startswith("connected to ipv4:127.0.0.1:")
    assert line.endswith(" over shm")
    # At least the steps of a round, and the first one.
    assert made["counted"]["grpc+ar"]["worker:0"] >= 4 * (1 << 20)
    assert made["counted"]["grpc"]["worker:0"] == 0
    assert "nothing went over verbs, but over shm, tcp" in done.stderr


def test_another_wheel_is_refused(served: dict[str, str], wheel: Path, tmp_path: Path) -> None:
    other = tmp_path / wheel.name
    other.write_bytes(b"another one")
    done = recv(served, other)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"artf: {served['PEER']} has the wheel {wheel.name} ")
    assert last.endswith("copy one of them to the other host and name it there with --wheel")


def test_another_token_is_refused(served: dict[str, str], wheel: Path) -> None:
    done = recv({**served, "ARTF_PEER_TOKEN": "f" * 32}, wheel)
    assert done.returncode == 1
    assert "refuses: the token is another one" in done.stderr.splitlines()[-1]
