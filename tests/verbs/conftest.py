"""A virtual RDMA host, tried once before the first test that stands on one."""

from __future__ import annotations

from contextlib import suppress

import pytest

from artf_cli.errors import ArtfError
from common.lacking import cannot_be_had
from rdma_host import machine


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds the kernel outside of any test's time limit: beside other suites it takes longer."""
    if session.items and not session.config.option.collectonly:
        # The fixture says why not.
        with suppress(ArtfError):
            machine.prepare()


@pytest.fixture(scope="session", autouse=True)
def rdma_host() -> None:
    """The kernel is built and two hosts boot; else the tests skip with the reason, but in CI."""
    try:
        machine.self_test()
    except ArtfError as error:
        cannot_be_had(str(error))
