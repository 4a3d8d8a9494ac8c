"""Jobs on a real Slurm: the training of digits.sbatch, and what becomes of its words."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from common.nodes import SCRATCH
from common.page import PAGE
from common.protocols import AR
from common.slurm import COMPUTE, Slurm

pytestmark = pytest.mark.timeout(600)

FOLDER = SCRATCH / "clusters"
#: Like a site's that reaches no node: an address that nobody here has.
PROXY = {"http_proxy": "http://10.78.0.250:3128"}
#: 64 pixels, 1024 units, 10 digits: bytes of the gradients, and steps in twelve epochs.
GRADIENTS = 4 * (64 * 1024 + 1024 + 1024 * 10 + 10)
STEPS = 12 * -(-1437 // 128)
#: What a worker gets around a ring of four: three quarters of them to add up, and as much of sums.
TENSORS = STEPS * GRADIENTS * 3 // 2


def submitted(said: str) -> str:
    found = re.search(r"^Submitted batch job (\d+)$", said, re.M)
    assert found, said
    return found[1]


def log(slurm: Slurm, job: str) -> str:
    return (slurm.nodes.scratch / "clusters" / f"digits-{job}.out").read_text()


def submit(slurm: Slurm, python: str) -> str:
    """Submits the training with other words in place of a Python; the job's number."""
    said = slurm.command("sbatch", "digits.sbatch", cwd=FOLDER, env={"PYTHON": python}).stdout
    return submitted(said)


def write_program(slurm: Slurm, name: str, text: str) -> Path:
    """A program on the scratch, where all nodes see it."""
    path = slurm.nodes.scratch / name
    path.write_text(text)
    path.chmod(0o755)
    return SCRATCH / name


def node_of(slurm: Slurm, peer: str) -> str:
    """The node that has the address of a path's peer, `ipv4:HOST:PORT`."""
    address = peer.split(":")[1]
    return next(node.name for node in slurm.nodes.all if node.address == address)


def ways(slurm: Slurm, worker: dict[str, Any]) -> set[tuple[bool, str]]:
    """(whether the peer is on the worker's own node, by which path it was reached)."""
    return {
        (node_of(slurm, peer) == worker["host"], path) for peer, path in worker["paths"].items()
    }


def test_the_job_trains(slurm: Slurm, modules: Path) -> None:
    """Two nodes, two workers on each: shared memory within a node, TCP between them."""
    commands = f"source {modules}\n{PAGE['Slurm']}"
    said = slurm.command("bash", "-euc", commands, env=PROXY).stdout
    job = submitted(said)
    assert re.search(rf"^ +{job} .* digits +nobody ", said, re.M), said
    assert slurm.wait(job, 300) == "COMPLETED", log(slurm, job)
    print(log(slurm, job))

    lines = slurm.command("bash", "-euc", PAGE["What it says"]).stdout.splitlines()
    workers = sorted((json.loads(line) for line in lines), key=lambda each: int(each["worker"]))
    assert [each["worker"] for each in workers] == [0, 1, 2, 3]
    assert [each["host"] for each in workers] == ["n10", "n10", "n9", "n9"]
    first = 10000 + int(job) * 16
    assert [each["address"] for each in workers] == [
        f"{node}:{port}" for node in ("n10", "n9") for port in (first, first + 1)
    ]
    for each in workers:
        assert each["rpc_layer"] == AR
        assert each["workers"] == 4
        assert each["accuracy"] >= 0.95
        assert ways(slurm, each) <= {(True, "shm"), (False, "tcp")}
    reached = set().union(*(ways(slurm, each) for each in workers))
    assert reached == {(True, "shm"), (False, "tcp")}
    # Around the ring a node's second worker has them from its first one, and that one over TCP.
    carried = [each["stream_bytes_received"] + each["rendezvous_bytes"] for each in workers]
    assert min(carried[1], carried[3]) >= TENSORS, carried
    assert max(carried[0], carried[2]) < TENSORS // 10, carried
    assert "over tcp: shm: the peer is in another network namespace" in log(slurm, job)


def test_a_python_of_several_words(slurm: Slurm) -> None:
    """As the page has it for Apptainer, in whose place a program says how it was called."""
    apptainer = write_program(slurm, "apptainer", '#!/bin/sh\necho "$SLURMD_NODENAME $*"\n')
    line = PAGE["Apptainer"].splitlines()[-1]
    words = re.fullmatch(r'PYTHON="apptainer (.*)" sbatch digits.sbatch', line)
    assert words, line
    job = submit(slurm, f"{apptainer} {words[1].replace('$SCRATCH', str(SCRATCH))}")
    assert slurm.wait(job, 60) == "COMPLETED", log(slurm, job)
    called = f"exec {SCRATCH}/ar-tensorflow.sif python -u digits.py"
    wanted = [f"{node} {called}" for node in COMPUTE for _ in range(2)]
    assert sorted(log(slurm, job).splitlines()) == sorted(wanted)


def test_a_task_that_fails_ends_the_others(slurm: Slurm) -> None:
    program = write_program(
        slurm, "fails", '#!/bin/sh\n[ "$SLURM_PROCID" = 3 ] && exit 7\nexec sleep 600\n'
    )
    job = submit(slurm, str(program))
    assert slurm.wait(job, 60) == "FAILED", log(slurm, job)
    assert "task 3: Exited with exit code 7" in log(slurm, job)


def test_the_cache_is_where_flock_is(slurm: Slurm) -> None:
    slurm.command("bash", "-euc", PAGE["The cache"])
    assert list((slurm.nodes.scratch / "artf").iterdir()) == []


def test_what_tensorflows_resolver_leaves_to_you(python: Path) -> None:
    """What the page says of it, and that scripts/clusters/digits.py mends it."""
    program = Path(__file__).parent / "programs" / "resolvers.py"
    done = subprocess.run([str(python), str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["stock without GPUs"] == "range() arg 3 must not be zero"
    assert said["stock without nvidia-smi"] == "FileNotFoundError"
    # Slurm's tasks in its order; the last two numbers are the ports' distance from the first.
    assert said["hosts"] == ["n9", "n9", "n10", "n10"]
    assert said["stock"] == [["n10", 0], ["n10", 1], ["n9", 0], ["n9", 1]]
    assert said["ours"] == [["n9", 0], ["n9", 1], ["n10", 0], ["n10", 1]]
    assert said["ours, cyclic"] == [["n9", 0], ["n10", 0], ["n9", 1], ["n10", 1]]
    assert said["accelerators"] == {"GPU": 0}
    # Jobs that follow each other, and the last before the numbers begin anew.
    assert said["ports"] == [10000, 10016, 29984, 10000]
