"""The server fixtures, for this suite."""

from common.fixtures import (  # noqa: F401
    cluster,
    new_cluster,
    pytest_runtest_makereport,
    shared_clusters,
)
