"""Fixtures of the suites that use servers; a suite's conftest.py imports the names it wants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable

import pytest

from common.processes import Cluster

ClusterFactory = Callable[..., Cluster]


@pytest.fixture(scope="session")
def shared_clusters() -> Iterator[dict[str, Cluster]]:
    clusters: dict[str, Cluster] = {}
    yield clusters
    for cluster in clusters.values():
        cluster.close()


def _report(request: pytest.FixtureRequest, cluster: Cluster) -> None:
    request.node.user_clusters = [*getattr(request.node, "user_clusters", []), cluster]


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest,
    protocol: str,
    shared_clusters: dict[str, Cluster],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    """One ps and two workers, shared by all tests that leave them alive."""
    for other in [name for name in shared_clusters if name != protocol]:
        shared_clusters.pop(other).close()
    if protocol not in shared_clusters:
        folder = tmp_path_factory.mktemp("cluster")
        shared_clusters[protocol] = Cluster(protocol, {"ps": 1, "worker": 2}, folder)
    current = shared_clusters[protocol]
    current.mark()
    _report(request, current)
    yield current
    dead = current.dead()
    if dead or getattr(request.node, "user_failed", False):
        shared_clusters.pop(protocol).close()
    assert not dead, f"servers died during the test: {', '.join(dead)}\n{current.report()}"


@pytest.fixture
def new_cluster(
    request: pytest.FixtureRequest, protocol: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterFactory]:
    """Makes clusters of one's own, for tests that kill servers: `new_cluster(ps=1, worker=1)`."""
    clusters: list[Cluster] = []

    def make(env: dict[str, str] | None = None, **jobs: int) -> Cluster:
        clusters.append(Cluster(protocol, jobs, tmp_path_factory.mktemp("cluster"), env))
        _report(request, clusters[-1])
        return clusters[-1]

    yield make
    for each in clusters:
        each.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Shows the servers' stderr with a failed test."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        item.user_failed = True  # type: ignore[attr-defined]
        for used in getattr(item, "user_clusters", []):
            report.sections.append(("servers", used.report()))
