"""The wheel under test: `scripts/artf test` names it."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-reproduced",
        action="store_true",
        help="build twice, and keep what both builds agree on in build/reproduced.json",
    )
    parser.addoption(
        "--record-requests",
        action="store_true",
        help="keep the counts of requests in docs/measured/requests.json",
    )


@pytest.fixture(scope="session")
def wheel() -> Path:
    """The wheel that was just built."""
    return Path(os.environ["ARTF_WHEEL"])


@pytest.fixture(scope="session")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's shared libraries and metadata, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith("tensorflow/libtensorflow_") or ".dist-info/" in name:
                archive.extract(name, folder)
    return folder
