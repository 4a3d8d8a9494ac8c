"""The matrix's cells, the cluster of a cell, and the report."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.fixtures import (
    ClusterFactory,
    cluster_factory,
    path_cluster,  # noqa: F401
    pytest_runtest_makereport,  # noqa: F401
    shared_clusters,  # noqa: F401
)
from common.paths import DataPath
from matrix.report import Recorder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--matrix-report",
        metavar="DIR",
        type=Path,
        help="where matrix.html and matrix.json go (default: $ARTF_REPORTS, else a new folder of "
        "the system's temporary ones)",
    )


def _folder(config: pytest.Config) -> Path:
    chosen: Path | None = config.getoption("--matrix-report", None)
    if chosen is None and os.environ.get("ARTF_REPORTS"):
        chosen = Path(os.environ["ARTF_REPORTS"])
    return chosen or Path(tempfile.mkdtemp(prefix="artf-matrix-"))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder(lambda: _folder(config)), "matrix-report")


@pytest.fixture
def own_cluster(
    request: pytest.FixtureRequest, path: DataPath, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterFactory]:
    """Makes a cluster of this path, for what may kill it."""
    yield from cluster_factory(request, path.protocol, tmp_path_factory, path.mpi)
