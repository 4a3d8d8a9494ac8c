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

#: Its long forms take 20 minutes each where a machine is slow.
_HUNT = "test_no_value_is_torn"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Parts of their own: what goes by MPI, what runs in a virtual host, the other long hunts."""
    callspec = getattr(item, "callspec", None)
    path = callspec.params.get("path") if callspec else None
    if driver_of(item):
        item.add_marker(pytest.mark.part("recv-verbs"))
    elif isinstance(path, DataPath) and path.mpi:
        item.add_marker(pytest.mark.part("recv-mpi"))
    elif getattr(item, "originalname", "") == _HUNT and item.get_closest_marker("slow"):
        item.add_marker(pytest.mark.part("recv-hunts"))
