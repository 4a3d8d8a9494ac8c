"""Programs as users write them, which the launcher itself starts as all ranks of a job."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from common.mpi_job import mpirun
from common.page import PROTOCOLS, blocks
from common.processes import own_address
from common.repeated import few

pytestmark = pytest.mark.timeout(180)

#: What docs/protocols.md shows its program under.
HEADING = "A whole program"
#: Of that program: what it trains, as bytes, and for how many steps.
PARAMETERS, STEPS = 4 * (64 * 256 + 256 + 256 * 10 + 10), 100

every_mpi = pytest.mark.parametrize(
    "mpi",
    few(
        ["debian-mpich", "debian-openmpi", "mpich-5-standard", "openmpi-5"],
        "debian-mpich",
        "debian-openmpi",
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
    read = re.findall(r"^/job:worker/task:(\d) reads ([\d.]+)% right$", text, re.M)
    assert sorted(index for index, _ in read) == ["0", "1"], text
    assert all(float(right) >= 95 for _, right in read), text
    received = dict(re.findall(r"^/job:(\w+/task:\d) received (\d+) bytes by MPI$", text, re.M))
    # Of each of its steps a worker has the parameters, and the ps the gradients.
    least = {"ps/task:0": 2, "worker/task:0": 1, "worker/task:1": 1}
    assert received.keys() == least.keys(), text
    for task, times in least.items():
        assert int(received[task]) >= times * STEPS * PARAMETERS, text
