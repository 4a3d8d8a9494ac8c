"""A virtual RDMA host, tried once before the first test that stands on one."""

from __future__ import annotations

import os

import pytest

from artf_cli.errors import ArtfError
from rdma_host import machine


@pytest.fixture(scope="session", autouse=True)
def rdma_host() -> None:
    """The kernel is built and two hosts boot; else the tests skip with the reason, but in CI."""
    try:
        machine.self_test()
    except ArtfError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
