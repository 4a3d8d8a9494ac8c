"""Fixtures of the suites that use servers; a suite's conftest.py imports the names it wants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable

import pytest

from common.paths import DataPath
from common.processes import Cluster
from common.protocols import AR, select, wanted
from common.virtual_host import before_hosts

ClusterFactory = Callable[..., Cluster]


@pytest.fixture(scope="session")
def shared_clusters(request: pytest.FixtureRequest) -> Iterator[dict[str, Cluster]]:
    clusters: dict[str, Cluster] = {}

    def close() -> None:
        while clusters:
            clusters.popitem()[1].close()

    before_hosts(request.config, close)
    yield clusters
    close()


def _report(request: pytest.FixtureRequest, cluster: Cluster) -> None:
    request.node.user_clusters = [*getattr(request.node, "user_clusters", []), cluster]


def _need_ar(request: pytest.FixtureRequest) -> None:
    if AR not in select(request.config.getoption("--protocols")):
        pytest.skip(f"--protocols leaves {AR} out")


def shared_from(
    request: pytest.FixtureRequest,
    clusters: dict[str, Cluster],
    name: str,
    make: Callable[[], Cluster],
) -> Iterator[Cluster]:
    for other in [each for each in clusters if each != name]:
        clusters.pop(other).close()
    if name not in clusters:
        clusters[name] = make()
    current = clusters[name]
    current.mark()
    _report(request, current)
    yield current
    dead = current.dead()
    if dead or getattr(request.node, "user_failed", False):
        clusters.pop(name).close()
    assert not dead, f"servers died during the test: {', '.join(dead)}\n{current.report()}"


def cluster_factory(
    request: pytest.FixtureRequest,
    protocol: str,
    tmp_path_factory: pytest.TempPathFactory,
    mpi: str = "",
) -> Iterator[ClusterFactory]:
    clusters: list[Cluster] = []

    def make(
        env: dict[str, str] | None = None,
        *,
        protocols: dict[str, str] | None = None,
        envs: dict[str, dict[str, str]] | None = None,
        clients: int = 0,
        **jobs: int,
    ) -> Cluster:
        folder = tmp_path_factory.mktemp("cluster")
        clusters.append(Cluster(protocol, jobs, folder, env, protocols, envs, mpi, clients))
        _report(request, clusters[-1])
        return clusters[-1]

    yield make
    for each in clusters:
        each.close()


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest,
    protocol: str,
    shared_clusters: dict[str, Cluster],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    """One ps and two workers, shared by all tests that leave them alive."""

    def make() -> Cluster:
        return Cluster(protocol, {"ps": 1, "worker": 2}, tmp_path_factory.mktemp("cluster"))

    yield from shared_from(request, shared_clusters, protocol, make)


@pytest.fixture
def new_cluster(
    request: pytest.FixtureRequest, protocol: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterFactory]:
    """Makes clusters of one's own, for tests that kill servers: `new_cluster(ps=1, worker=1)`."""
    yield from cluster_factory(request, protocol, tmp_path_factory)


@pytest.fixture
def new_ar_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterFactory]:
    """The same for tests of `grpc+ar` alone."""
    _need_ar(request)
    yield from cluster_factory(request, AR, tmp_path_factory)


@pytest.fixture
def pair(
    request: pytest.FixtureRequest,
    fabric: str,
    shared_clusters: dict[str, Cluster],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    """A ps and a worker of `grpc+ar` that may use only `fabric`, shared by all tests of it."""
    _need_ar(request)

    def make() -> Cluster:
        env = {"AR_GRPC_FABRICS": fabric}
        return Cluster(AR, {"ps": 1, "worker": 1}, tmp_path_factory.mktemp("cluster"), env)

    yield from shared_from(request, shared_clusters, f"{AR} over {fabric}", make)


@pytest.fixture
def path_cluster(
    request: pytest.FixtureRequest,
    path: DataPath,
    shared_clusters: dict[str, Cluster],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    """A ps and two workers that may use only this path, shared by all tests of it."""
    if path.protocol not in wanted(request.config.getoption("--protocols")):
        pytest.skip(f"--protocols leaves {path.protocol} out")

    def make() -> Cluster:
        jobs = {"ps": 1, "worker": 2}
        folder = tmp_path_factory.mktemp("cluster")
        # As many as cases of the matrix have a program beside the servers.
        return Cluster(path.protocol, jobs, folder, path.env, mpi=path.mpi, clients=2)

    yield from shared_from(request, shared_clusters, f"path {path.name}", make)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Shows the servers' stderr with a failed test."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        item.user_failed = True  # type: ignore[attr-defined]
        for used in getattr(item, "user_clusters", []):
            report.sections.append(("servers", used.report()))
