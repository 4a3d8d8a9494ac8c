"""Every case over every path: right values, and as many bytes as its payload, where they belong."""

from __future__ import annotations

import time

import psutil
import pytest

from common.fixtures import ClusterFactory
from common.paths import PATHS, DataPath
from common.processes import Cluster
from common.protocols import STOCK, wanted
from matrix import cases_faults, cases_rest, cases_steps, cases_tf2, cases_values  # noqa: F401
from matrix.cases import CASES, GIB, Case, rows
from matrix.meter import assert_fabric, assert_path, carried, read
from matrix.not_offered import NOT_OFFERED
from matrix.report import CELL

#: What servers, a client and the kernel of a virtual host take beside a case's memory.
_REST = 3 * GIB
_REFUSED = {(entry.path, entry.case): entry for entry in NOT_OFFERED}


#: Of a path those that run each time; all do over shared memory, without an entry. Stock shows that
#: the table can tell it from ours. Over TCP are some in which a tensor's way differs; in a virtual
#: host, or over MPI, at least a large one. Strategies train over MPI in tests/mpi_servers.
_QUICK = {
    "grpc": frozenset({"scalars", "large", "cancel"}),
    "grpc+ar/tcp": frozenset(
        {
            "scalars",
            "large",
            "strings",
            "receiver first",
            "dead tensors",
            "concurrent steps",
            "cancel",
            "abort",
            "peer killed",
        }
    ),
    "grpc+ar/rxe": frozenset({"large", "peer killed"}),
    "grpc+ar/siw": frozenset[str](),
    "grpc+verbs/rxe": frozenset({"large"}),
    "grpc+verbs/siw": frozenset[str](),
    "grpc+mpi/mpich": frozenset({"scalars", "large", "cancel", "peer killed"}),
    "grpc+mpi/openmpi": frozenset({"large"}),
    "grpc+mpi/mpich5": frozenset[str](),
    "grpc+mpi/openmpi5": frozenset[str](),
}


def _marks(path: DataPath, case: Case) -> list[pytest.MarkDecorator]:
    marks = [pytest.mark.timeout(case.limit * path.patience), *path.marks]
    if path.driver and case.memory:
        memory_mb = (case.memory + _REST) >> 20
        marks.append(pytest.mark.virtual_host(path.driver, memory_mb=memory_mb))
    quick = case.quick_on is None or path.name in case.quick_on
    if not quick or case.name not in _QUICK.get(path.name, {case.name}):
        marks.append(pytest.mark.slow)
    return marks


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    offered = metafunc.function is test_cell
    if offered or metafunc.function is test_not_offered:
        protocols = wanted(metafunc.config.getoption("--protocols"))
        cells = [
            pytest.param(path, case, marks=_marks(path, case), id=f"{path.name}-{case.name}")
            for path in PATHS
            if path.protocol in protocols
            for case in rows()
            if ((path.name, case.name) in _REFUSED) != offered
        ]
        metafunc.parametrize(("path", "case"), cells)


def test_cell(
    request: pytest.FixtureRequest, path: DataPath, case: Case, path_cluster: Cluster
) -> None:
    """The values are right, and the counters say that they took this path, and no other one."""
    memory = psutil.virtual_memory()
    if memory.available < case.memory:
        # Of a virtual host, which gets what the machine has to spare when it boots.
        free, total, need = (each / GIB for each in (memory.available, memory.total, case.memory))
        pytest.skip(f"{free:.1f} of {total:.1f} GiB of memory are free, {need:.0f} needed")
    cell = request.node.stash[CELL]
    cell.payload = case.payload.bytes + case.payload.encoded
    began = time.monotonic()
    cluster = path_cluster
    before = read(cluster)
    said = case.run(cluster)
    if said is not None:
        before, addresses = {}, list(said)
    else:
        if case.then is not None:
            before = read(cluster)
            case.then(cluster)
        said = read(cluster)
        addresses = [address for job in cluster.spec.values() for address in job]
    cell.milliseconds = round(1000 * (time.monotonic() - began))
    cell.carried = carried(said, before)

    def prove(taken: DataPath) -> None:
        assert_path(taken, case.payload, cell.carried)
        assert_fabric(taken, list(said.values()), addresses)

    prove(path)
    for other in PATHS:
        # What a classic channel leaves to the response goes as stock's does.
        in_response = not case.payload.bytes and all(
            each.classic or each.protocol == STOCK for each in (path, other)
        )
        # Two devices of one fabric are told apart by the host, which has only one of them, two MPIs
        # by what the processes have loaded.
        if (other.fabric, other.small) != (path.fabric, path.small) and not in_response:
            with pytest.raises(AssertionError):
                prove(other)


def test_not_offered(
    request: pytest.FixtureRequest, path: DataPath, case: Case, own_cluster: ClusterFactory
) -> None:
    """The path behaves as its entry says; if it does not, the entry is stale."""
    entry = _REFUSED[path.name, case.name]
    cell = request.node.stash[CELL]
    cell.refused = entry.reason
    began = time.monotonic()
    entry.shows(own_cluster(path.env, ps=1, worker=1))
    cell.milliseconds = round(1000 * (time.monotonic() - began))


def test_what_is_not_offered_is_a_cell_of_the_table() -> None:
    """No entry outlives its case or its path, none is there twice, each has a reason."""
    cells = {(path.name, case) for path in PATHS for case in CASES}
    assert len(_REFUSED) == len(NOT_OFFERED)
    assert set(_REFUSED) <= cells
    assert all(set(CASES) >= quick for quick in _QUICK.values())
    # All of them run each time over a path that is quick enough for it.
    assert set(_QUICK) <= {path.name for path in PATHS}
    assert set(_QUICK) >= {path.name for path in PATHS if path.driver or path.mpi}
    assert all(entry.reason for entry in NOT_OFFERED)
