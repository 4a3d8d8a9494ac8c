"""The server fixtures, for this suite."""

from common.fixtures import (  # noqa: F401
    cluster,
    new_ar_cluster,
    new_cluster,
    pair,
    path_cluster,
    pytest_runtest_makereport,
    shared_clusters,
)
