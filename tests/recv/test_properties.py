"""Random graphs give the same bits over each path as in one process.

What was found once is replayed from kept_cases/ in every run. A failure writes its smallest case
there: commit it with what mends it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import find as smallest

from common.ar import path_of, thresholds, wait_no_offers
from common.paths import (
    MPI_RECEIVED,
    OURS,
    PATHS,
    RENDEZVOUS,
    VERBS_RECEIVED,
    DataPath,
)
from common.processes import Cluster
from common.protocols import STOCK, STOCK_COLLISION
from common.repeated import counts_over_paths, few
from common.sessions import On, assert_same
from recv.cases import CASES
from recv.graphs import DTYPES, NODES, TASKS, Case, Graph, run

_KEPT = Path(__file__).with_name("kept_cases")
_FOUND = "found-over-"
#: So many graphs are drawn in each run, always the same.
_SAME = 60
#: A graph is built and run in one piece, so that only the counts limit a run.
_SETTINGS: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.generate, Phase.shrink],
}
_WAYS = [(client, server) for client in TASKS for server in TASKS if client != server]

over_paths = pytest.mark.parametrize(
    "path", few(PATHS, *OURS), ids=lambda path: path.name, scope="session"
)


def same_as_local(case: Case, target: str, make: Callable[[Case, On], Graph] = Graph) -> list[int]:
    """Each step's values are those of one process; the sizes of what crossed in the first."""
    expected, _ = run(case)
    got, crossed = run(case, target, make)
    assert len(got) == len(expected) == case["steps"]
    for step, (values, wanted) in enumerate(zip(got, expected)):
        try:
            assert_same(values, wanted)
        except AssertionError as error:
            raise AssertionError(f"step {step} of {json.dumps(case)}: {error}") from None
    return crossed


#: Above it every machine takes the rendezvous over shared memory (kHighestCrossing, printed
#: with four digits); the same cases are drawn for paths over which nothing is read.
_SURELY_LARGE = 129 * 2**10


class Run:
    """Cases over one cluster, and what of them crossed."""

    def __init__(self, cluster: Cluster, path: DataPath) -> None:
        self._cluster = cluster
        self._found = _KEPT / f"{_FOUND}{path.name.replace('/', '-')}.json"
        self._high = _SURELY_LARGE
        if path.fabric == "shm":
            # A printed size has four digits: above `high` it is a rendezvous for sure.
            (_, self._high, protocol) = thresholds(cluster[TASKS[0]].status())[1]
            assert protocol == "rendezvous" and self._high <= _SURELY_LARGE
        self.cases = 0
        #: Of what crossed in each case's first step, and the bytes of all steps, which are alike.
        self.sizes: list[int] = []
        self.bytes = 0
        self.drawn: set[str] = set()

    @property
    def large(self) -> int:
        return sum(size >= self._high for size in self.sizes)

    def check(self, case: Case) -> None:
        try:
            crossed = self._same(case)
        except BaseException:
            # The last one that hypothesis runs is the smallest.
            self._found.write_text(json.dumps(case, indent=1) + "\n")
            raise
        self.sizes += crossed
        self.bytes += sum(crossed) * case["steps"]
        self.cases += 1
        self.drawn.update(source["dtype"] for source in case["sources"])
        self.drawn.update(node["node"] for node in case["nodes"])

    def _same(self, case: Case) -> list[int]:
        target = self._cluster.target(case["master"])
        try:
            return same_as_local(case, target)
        except tf.errors.AbortedError as error:
            if self._cluster.protocol != STOCK or STOCK_COLLISION not in str(error):
                raise
            return same_as_local(case, target)

    def count(self) -> dict[str, int]:
        """What all servers' counters say by now."""
        statuses = [self._cluster[task].status() for task in TASKS]
        names = ("rendezvous", "chunk_bytes", "stream_bytes_received")
        return {
            name: sum(status[name] for status in statuses)
            for name in (*names, MPI_RECEIVED, VERBS_RECEIVED)
        }


@pytest.mark.parametrize(
    ("path", "cases"), counts_over_paths((_SAME, 600), (2000, 1800)), scope="session"
)
def test_random_graphs(path_cluster: Cluster, path: DataPath, cases: int) -> None:
    """The same cases in every ordinary run, others in each slow one."""
    same_each_run = cases == _SAME
    over = Run(path_cluster, path)
    before = over.count()

    @settings(max_examples=cases, derandomize=same_each_run, **_SETTINGS)
    @given(CASES)
    def holds(case: Case) -> None:
        over.check(case)

    holds()
    print(f"{path.name}: {over.cases} cases, {over.large} of {len(over.sizes)} tensors are large")
    assert over.cases >= cases
    missing = {*DTYPES, *NODES} - over.drawn
    # Few cases do not draw every type.
    assert not missing or (cases < 1000 and not missing & set(NODES)), missing
    assert over.large * 5 >= len(over.sizes) > cases
    moved = {name: value - before[name] for name, value in over.count().items()}
    if path.large == RENDEZVOUS:
        # What was counted is each case's first step alone.
        assert moved["rendezvous"] >= over.large and moved["stream_bytes_received"] > 0
    else:
        classic = moved.pop(MPI_RECEIVED) + moved.pop(VERBS_RECEIVED)
        assert moved == {"rendezvous": 0, "chunk_bytes": 0, "stream_bytes_received": 0}
        # Those of types that memcpy cannot copy are few, and small.
        assert classic > 0.8 * over.bytes if path.classic else classic == 0
    fabrics = {path_of(path_cluster, *way) for way in _WAYS}
    assert fabrics == {path.fabric}
    wait_no_offers(path_cluster, *TASKS)


@over_paths
@pytest.mark.parametrize("kept", sorted(_KEPT.glob("*.json")), ids=lambda kept: kept.stem)
def test_kept_case(path_cluster: Cluster, kept: Path) -> None:
    case = json.loads(kept.read_text())
    same_as_local(case, path_cluster.target(case["master"]))


# --- that these tests can fail --------------------------------------------------------------------


class WrongMove(Graph):
    """Turns round by one byte what is moved to worker 1, of this type and from this size on."""

    def move(self, value: Any, task: str) -> Any:
        moved = super().move(value, task)
        if task != "worker:1" or value.dtype != tf.uint8:
            return moved
        with self._on(task):
            flat = tf.reshape(moved, [-1])
            wrong = tf.reshape(tf.concat([flat[1:], flat[:1]], 0), tf.shape(moved))
            return tf.where(tf.size(moved) >= 1000, wrong, moved)


@pytest.mark.slow
def test_a_wrong_operation_is_found_and_made_small() -> None:
    """Two processes are not needed to be wrong in one partition."""

    def fails(case: Case) -> bool:
        if not any(source["dtype"] == "uint8" for source in case["sources"]):
            return False  # no need to run it: WrongMove is right for every other type
        try:
            same_as_local(case, make=WrongMove, target="")
        except AssertionError:
            return True
        return False

    case = smallest(
        CASES, fails, settings=settings(max_examples=2000, derandomize=True, **_SETTINGS)
    )
    assert len(case["sources"]) == len(case["nodes"]) == case["steps"] == 1
    assert case["sources"][0]["dtype"] == "uint8"
    assert case["nodes"][0]["task"] == "worker:1" or case["nodes"][0]["to"] == "worker:1"


@over_paths
def test_a_wrong_partition_is_found(path_cluster: Cluster) -> None:
    case: Case = {
        "master": "worker:0",
        "steps": 2,
        "sources": [{"source": "made_source", "task": "ps:0", "dtype": "uint8", "size": 100001}],
        "nodes": [{"node": "move", "of": 0, "task": "worker:1"}],
    }
    assert max(same_as_local(case, path_cluster.target())) == 100001
    with pytest.raises(AssertionError, match=r"step 0 of .*of 100001 bytes"):
        same_as_local(case, path_cluster.target(), WrongMove)
