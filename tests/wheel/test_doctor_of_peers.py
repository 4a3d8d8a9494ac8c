"""`artf doctor --peer` and real servers: what they are, and by which path they are reached."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from artf_cli import venv
from artf_cli.paths import DIST
from common.processes import own_address

pytestmark = pytest.mark.timeout(300)

_SERVER = """
import sys
import tensorflow as tf
protocol, address = sys.argv[1:]
# The other task is not there: the doctor must not wait for it.
cluster = {"ps": [address], "worker": ["127.0.0.1:9"]}
server = tf.compat.v1.train.Server(cluster, job_name="ps", protocol=protocol)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def server(python: Path, protocol: str, env: Mapping[str, str]) -> Iterator[str]:
    """The address of a server."""
    address = own_address()
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(
        [str(python), "-c", _SERVER, protocol, address],
        env={**clean, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield address
        process.kill()


def doctor(address: str) -> dict[str, Any]:
    """What it says of a peer."""
    command = [sys.executable, "-m", "artf_cli", "doctor", "--json", "--peer", address]
    done = subprocess.run(command, capture_output=True, text=True)
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == (0 if said["ok"] else 1), done.stderr
    (check,) = [each for each in said["checks"] if each["name"] == f"peer {address}"]
    return {**said["peer"], "status": check["status"]}


@pytest.fixture(scope="module")
def python(wheel: Path) -> Path:
    """Of the wheel in dist/, which is the one that the doctor takes."""
    assert wheel.parent == DIST
    return venv.make(wheel)


def test_a_server_on_this_host(python: Path, wheel: Path) -> None:
    with server(python, "grpc+ar", {}) as address:
        found = doctor(address)
    assert (found["kind"], found["path"], found["status"]) == ("grpc+ar", "shm", "ok")
    assert (found["wheel"], found["untold"]) == (wheel.name, "")
    assert found["fabrics"] == [{"fabric": "shm", "reached": True, "why": ""}]
    assert found["log"] == [f"connected to ipv4:{address} over shm"]


def test_a_server_that_allows_no_fabric(python: Path) -> None:
    with server(python, "grpc+ar", {"AR_GRPC_FABRICS": "tcp"}) as address:
        found = doctor(address)
    assert (found["kind"], found["path"], found["status"]) == ("grpc+ar", "tcp", "warn")
    shm, verbs, tcp = found["fabrics"]
    assert shm == {
        "fabric": "shm",
        "reached": False,
        "why": "the server allows none of the client's fabrics",
    }
    # Where this machine has no RDMA device it is that, else what the server said.
    assert (verbs["fabric"], verbs["reached"]) == ("verbs", False)
    assert verbs["why"]
    assert tcp == {"fabric": "tcp", "reached": True, "why": ""}


def test_a_stock_server(python: Path) -> None:
    with server(python, "grpc", {}) as address:
        found = doctor(address)
    assert (found["kind"], found["path"]) == ("grpc", "tcp")
    assert found["detail"] == "it speaks HTTP/2 and no AR-gRPC"
