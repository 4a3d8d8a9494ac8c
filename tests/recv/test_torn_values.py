"""The hunt for torn values: programs/torn_values.py, over each path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from common.mpi_job import Job
from common.paths import RENDEZVOUS, DataPath
from common.processes import own_address, run_program
from common.protocols import STOCK
from common.repeated import counts_over_paths
from recv.hunt import is_mixture

_PROGRAM = Path(__file__).parent / "programs/torn_values.py"
#: What looks for nothing but a value that is torn.
_CONTROL = "no order"


def _bytes_of(hunt: str) -> int:
    """A value's, of the program's words of 8 bytes: the name ends with ", 256 words"."""
    return 8 * int(hunt.rsplit(", ", 1)[1].split()[0])


def test_an_element_that_is_written_between_two_sends_is_known() -> None:
    """As was seen over stock; other values that lie as far outside are wrong."""
    # Doubles from 2^14 to 2^15 - 1 have the two lowest bits of the integer in another byte than the
    # next ones: a carry between the two changes both bytes, and half of it gives up to 3 off.
    at = 24704
    mixtures = {
        end
        for end in range(4000, 4060)
        for place in range(at, at + 8)
        if is_mixture(end, place, 4030, 4033)
    }
    assert {4027, 4034} <= mixtures
    assert not any(is_mixture(4031 + far, at, 4030, 4033) for far in (-9.5, 0.5, 20, -1000.25))
    assert not is_mixture(4034, at, 4030, 4030)


@pytest.mark.parametrize(("path", "iterations"), counts_over_paths((300, 300), (100000, 1800)))
def test_no_value_is_torn(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    path: DataPath,
    iterations: int,
) -> None:
    addresses = [own_address() for _ in range(3)]
    log = tmp_path / "stderr"
    settings = {
        "cluster": {"ps": addresses[:1], "worker": addresses[1:]},
        "protocol": path.protocol,
        "log": str(log),
        "env": dict(path.env),
        "iterations": iterations,
    }
    # The program's own, which a virtual host makes longer.
    limit = request.node.get_closest_marker("timeout").args[0] / path.patience
    # A rank for each of the three.
    job = Job(path.mpi, len(addresses)) if path.mpi else None
    try:
        said = run_program(_PROGRAM, settings, limit - 20, path.env, job).result()
    finally:
        print(log.read_text(errors="replace")[-3000:])
        if job:
            job.close()
    ps, *workers = said.pop("statuses")
    control = said.pop(_CONTROL)
    # Without an order the same looks find torn values, over this very path.
    assert control["wrong"] and all("versions" in each for each in control["wrong"]), control

    for name, hunt in said.items():
        print(f"{path.name}, {name}: {hunt['seen']} values in {hunt['seconds']} s")
    assert {name: hunt["wrong"] for name, hunt in said.items() if hunt["wrong"]} == {}
    assert sum(hunt["seen"] for hunt in said.values()) >= iterations
    for name, hunt in said.items():
        # Each run forked once, and each child wrote what it could and ended.
        assert hunt["forks"] == [0] * hunt["rounds"], name
        assert hunt["rounds"] == 1 or (path.protocol == STOCK and hunt["collisions"]), name

    counters: list[dict[str, Any]] = [ps, *workers]
    large = sum(hunt["seen"] for name, hunt in said.items() if ", 256 words" not in name)
    if path.large == RENDEZVOUS:
        assert sum(each["rendezvous"] for each in workers) >= large
        assert ps["rendezvous"] > 0 and ps["arena"]["size"] > 0
    else:
        assert all(each["rendezvous"] == each["chunk_bytes"] == 0 for each in counters)
    if path.classic:
        seen = sum(hunt["seen"] * _bytes_of(name) for name, hunt in said.items())
        assert sum(each[path.large] for each in workers) >= seen
    fabrics = {fabric for each in counters for fabric in each["paths"].values()}
    assert fabrics == ({path.fabric} if path.fabric else set())
