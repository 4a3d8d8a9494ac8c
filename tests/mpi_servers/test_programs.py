"""Programs as users write them, which the launcher itself starts as all ranks of a job."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from common.lacking import cannot_be_had
from common.mpi_job import library, mpirun
from common.page import PROTOCOLS, blocks
from common.pair import MIB, PS, WORKER
from common.processes import child_env, own_address
from common.repeated import few

pytestmark = pytest.mark.timeout(180)

SCRIPTS = Path(__file__).parents[2] / "scripts"
PROGRAMS = Path(__file__).with_name("programs")
#: What docs/protocols.md shows its program under.
HEADING = "A whole program"
#: Of that program: what it trains, as bytes, and for how many steps.
PARAMETERS, STEPS = 4 * (64 * 256 + 256 + 256 * 10 + 10), 100

every_mpi = pytest.mark.parametrize(
    "mpi",
    few(
        ["debian-mpich", "debian-openmpi", "mpich-5-standard", "openmpi-5"],
        "debian-mpich",
    ),
)


@every_mpi
def test_the_program_of_the_docs(mpi: str, tmp_path: Path) -> None:
    """A ps and two workers train, by MPI both ways, and all end by themselves: the ps, too."""
    program = tmp_path / "train.py"
    program.write_text(blocks(PROTOCOLS, "python")[HEADING])
    addresses = [own_address() for _ in range(3)]
    lines = mpirun(mpi, 3, sys.executable, program, *addresses, folder=tmp_path, seconds=90)
    text = "\n".join(lines)
    # Not whole lines: the launcher may put one rank's text before the end of another's line.
    read = re.findall(r"/job:worker/task:(\d) reads ([\d.]+)% right", text)
    assert sorted(index for index, _ in read) == ["0", "1"], text
    assert all(float(right) >= 95 for _, right in read), text
    received = dict(re.findall(r"/job:(\w+/task:\d) received (\d+) bytes by MPI", text))
    # Of each of its steps a worker has the parameters, and the ps the gradients.
    least = {"ps/task:0": 2, "worker/task:0": 1, "worker/task:1": 1}
    assert received.keys() == least.keys(), text
    for task, times in least.items():
        assert int(received[task]) >= times * STEPS * PARAMETERS, text


@functools.cache
def folder_of_mpi4py() -> Path:
    """Where it lies, installed as its lock says: beside the wheel's environment, not in it."""
    code = "from artf_cli import bootstrap; print(bootstrap.environment('mpi4py'))"
    # The one that the wheel's environment is made of: it stays when that goes.
    python = str(Path(sys.executable).resolve())
    done = subprocess.run(
        [python, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        cannot_be_had(f"mpi4py: {done.stderr.strip()}")
    (folder,) = Path(done.stdout.strip()).parents[1].glob("lib/python*/site-packages")
    return folder


# Not those that mpi4py's wheel has no module for: the standard interface, Debian's name of MPICH.
@pytest.mark.parametrize("mpi", few(["debian-openmpi", "mpich-5", "openmpi-5"], "debian-openmpi"))
def test_a_program_with_mpi4py(mpi: str, tmp_path: Path) -> None:
    """It has initialized MPI: the servers use that, beside it, and do not end it."""
    paths = [child_env()["PYTHONPATH"], str(folder_of_mpi4py())]
    env = {"PYTHONPATH": os.pathsep.join(paths), "MPI4PY_LIBMPI": library(mpi)}
    cluster = {"ps": [own_address()], "worker": [own_address()]}
    settings = {"cluster": cluster, "moved": 2 * MIB, "rounds": 5}
    # As docs/protocols.md has it: an exception ends the job.
    words = [sys.executable, "-m", "mpi4py", str(PROGRAMS / "beside_mpi4py.py")]
    (line,) = mpirun(mpi, 2, *words, json.dumps(settings), folder=tmp_path, seconds=90, env=env)
    said = json.loads(line)
    assert said.keys() == {PS, WORKER}
    for each in said.values():
        assert each["library"].startswith("Open MPI" if "openmpi" in mpi else "MPICH"), each
        assert each["multiple"] is True, each
        assert each["sums"] == [3, 3], each
        assert each["spreads"] == [[0.0, 0.0]] * 5, each
        assert each["received"] >= 5 * 2 * MIB, each
