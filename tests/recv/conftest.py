"""The server fixtures, for this suite, and the parts of `artf test --full` of its tests."""

from __future__ import annotations

import pytest

from common.fixtures import (  # noqa: F401
    cluster,
    new_ar_cluster,
    new_cluster,
    pair,
    path_cluster,
    pytest_runtest_makereport,
    shared_clusters,
)
from common.paths import DataPath
from common.virtual_host import driver_of


def pytest_itemcollected(item: pytest.Item) -> None:
    """What goes by MPI, and what runs in a virtual host, has a part of its own."""
    callspec = getattr(item, "callspec", None)
    path = callspec.params.get("path") if callspec else None
    if driver_of(item):
        item.add_marker(pytest.mark.part("recv-verbs"))
    elif isinstance(path, DataPath) and path.mpi:
        item.add_marker(pytest.mark.part("recv-mpi"))
