"""The server fixtures, for this suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from common.fixtures import (  # noqa: F401
    ClusterFactory,
    cluster,
    cluster_factory,
    new_ar_cluster,
    new_cluster,
    pair,
    pytest_runtest_makereport,
    shared_clusters,
)
from common.processes import Cluster
from common.protocols import STOCK, VERBS


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One server of the wheel's own, unpatched gRPC."""
    with Cluster(STOCK, {"ps": 1}, tmp_path_factory.mktemp("stock")) as made:
        yield made


@pytest.fixture
def new_cluster_of_verbs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterFactory]:
    """Makes clusters of grpc+verbs, in a virtual host."""
    yield from cluster_factory(request, VERBS, tmp_path_factory)
