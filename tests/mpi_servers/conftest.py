"""A cluster of ranks of each MPI."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from common.fixtures import ClusterFactory, cluster_factory, pytest_runtest_makereport  # noqa: F401
from common.protocols import MPI


@pytest.fixture
def new_mpi_cluster(
    request: pytest.FixtureRequest, mpi: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterFactory]:
    """Makes clusters of grpc+mpi, each a job of its own of the MPI `mpi`."""
    yield from cluster_factory(request, MPI, tmp_path_factory, mpi)
