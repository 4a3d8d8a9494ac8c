"""artf's tools between two virtual hosts over Soft-RoCE, as who has adapters uses them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from common import virtual_host

# Minutes long: TensorFlow's processes on two slow processors.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.part("recv-two-hosts"),
]

_ARTF = Path(__file__).parents[2] / "scripts/artf"
#: Of the first host (rdma_host.machine.ADDRESSES), which serves.
_WHERE = "10.77.0.1:7700"
_MEMORY_MB = 3072
#: Soft-RoCE's over an Ethernet of 1500 bytes.
_MTU = 1024
#: Which asks the device for it, as `scripts/artf doctor` does.
_PYVERBS = ["/usr/bin/python3", "-c", "import pyverbs"]
_SIZES = (4, 64 << 10, 1 << 20)
#: Protocols, and the paths of their tensors.
_WAYS = {"grpc": "tcp", "grpc+ar": "verbs", "grpc+verbs": "verbs"}
# Serves until the other host has what it wants.
_SERVE = 'until test -e "$DONE"; do sleep 1; done & wait=$!; "$@" & wait $wait; kill $!; wait'
_ASK = f"""
until (exec 3<>/dev/tcp/{_WHERE.replace(":", "/")}) 2>/dev/null; do sleep 1; done
"$@"; status=$?; touch "$DONE"; exit $status
"""
_SERVER = f"""
import threading
import tensorflow as tf
cluster = {{"ps": ["{_WHERE}"]}}
server = tf.compat.v1.train.Server(cluster, job_name="ps", protocol="grpc+ar")
threading.Event().wait()
"""


def between_two_hosts(folder: Path, serve: Sequence[str], ask: Sequence[str]) -> str:
    """What `ask` says on the second host while `serve` runs on the first."""
    env = {**virtual_host.environment(), "DONE": str(folder / "done")}
    env["ARTF_PEER_TOKEN"] = "of-both-virtual-hosts"
    # What overwrites freed memory slows the tools, whose tests are others.
    env.pop("GLIBC_TUNABLES", None)
    peer = shlex.join(["bash", "-c", _ASK, "ask", *ask])
    words = ["--peer", peer, "--timeout", "1200", "--", "bash", "-c", _SERVE, "serve", *serve]
    done = subprocess.run(
        virtual_host.command("rxe", *words, shared=[folder], memory_mb=_MEMORY_MB),
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def measure(folder: Path) -> dict[str, Any]:
    """The file that `bench recv --peer` writes."""
    wheel = ["--wheel", os.environ["ARTF_WHEEL"]]
    recv = [str(_ARTF), "bench", "recv", "--peer", _WHERE, *wheel, "--rounds", "1"]
    recv += ["--protocols", ",".join(_WAYS)]
    recv += ["--sizes", ",".join(map(str, _SIZES)), "--cold-rounds", "0"]
    recv += ["--output", str(folder / "rows.json")]
    between_two_hosts(folder, [str(_ARTF), "bench", "serve", "--listen", _WHERE, *wheel], recv)
    said: dict[str, Any] = json.loads((folder / "rows.json").read_text())
    return said


def test_tensors_go_over_verbs_and_the_record_says_so(tmp_path: Path) -> None:
    virtual_host.need()
    said = measure(tmp_path)
    assert [(row["bytes"], row["protocol"], row["fabric"]) for row in said["rows"]] == [
        (size, *way) for size in _SIZES for way in _WAYS.items()
    ]
    assert all(row["ratio"] is not None for row in said["rows"])
    made = said["record"]
    told = subprocess.run(_PYVERBS, capture_output=True).returncode == 0
    print("" if told else "the device is not asked for its MTU: no pyverbs in the system's Python")
    for where, facts in made["hosts"].items():
        (port,) = facts["rdma"]
        mtu = _MTU if told else None
        assert (port["name"], port["state"], port["active_mtu"]) == ("rxe0/1", "ACTIVE", mtu)
        assert (port["network"], port["network_mtu"]) == ("vec0", 1500)
        task = "worker:0" if where == "here" else "ps:0"
        counted = sum(made["counted"][protocol][task] for protocol in _WAYS)
        packets = made["received"][where]["rxe0/1"]["received_packets_of_driver"]
        print(f"{where}: {counted} bytes by our counters, {packets} packets by the device")
        assert 0 < counted <= packets * _MTU
    assert made["counted"]["grpc"] == {"ps:0": 0, "worker:0": 0}
    # Most of what came to the worker was payload in full packets.
    by_protocol = {name: made["counted"][name]["worker:0"] for name in ("grpc+ar", "grpc+verbs")}
    assert min(by_protocol.values()) >= 2 * sum(_SIZES)
    counted = sum(by_protocol.values())
    packets = made["received"]["here"]["rxe0/1"]["received_packets_of_driver"]
    assert packets * _MTU <= 1.3 * counted
    lines = made["said"]["grpc+ar"]
    assert any(line.startswith("RDMA over rxe0/1 ") for line in lines["ps:0"])
    assert any(line.endswith(" over verbs") for line in lines["worker:0"])


def test_the_doctor_says_by_what_a_server_is_reached(tmp_path: Path) -> None:
    virtual_host.need()
    # 1: this host lacks something that a build needs.
    script = '"$@" >"$0"; test $? -le 1'
    said = tmp_path / "said"
    doctor = ["bash", "-c", script, str(said), str(_ARTF), "doctor", "--peer", _WHERE, "--json"]
    between_two_hosts(tmp_path, [sys.executable, "-c", _SERVER], doctor)
    found = json.loads(said.read_text().splitlines()[-1])["peer"]
    assert (found["kind"], found["path"], found["untold"]) == ("grpc+ar", "verbs", "")
    shm, verbs = found["fabrics"]
    assert (shm["fabric"], shm["reached"]) == ("shm", False)
    print(f"not over shm: {shm['why']}")
    assert "host" in shm["why"]
    assert verbs == {"fabric": "verbs", "reached": True, "why": ""}
    assert any(line.startswith("RDMA over rxe0/1 ") for line in found["log"])
