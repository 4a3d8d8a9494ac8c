"""A virtual RDMA host, tried once before the first test that stands on one, and the times after
faults that tests see there."""

from __future__ import annotations

from contextlib import suppress

import pytest

from artf_cli.bench import figures, record
from artf_cli.errors import ArtfError
from common.lacking import cannot_be_had
from rdma_host import machine
from rdma_host.fault_times import FaultRecorder, FaultTimes

_COMMAND = 'scripts/artf test --only verbs -- --run-slow --record-faults -k "faults or writes"'
_TIMES = pytest.StashKey[FaultTimes]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-faults",
        action="store_true",
        help="keep the times from faults to what follows in docs/measured",
    )


def pytest_configure(config: pytest.Config) -> None:
    times = config.stash[_TIMES] = FaultTimes()
    if config.getoption("--record-faults"):
        made = record.record(None, [_COMMAND])

        def keep(rows: list[figures.FaultRow]) -> None:
            figures.write(figures.FOLDER / "faults.json", rows, made)

        config.pluginmanager.register(FaultRecorder(times, keep, _COMMAND))


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


@pytest.fixture(scope="session")
def fault_times(request: pytest.FixtureRequest) -> FaultTimes:
    """Takes what the tests see."""
    return request.config.stash[_TIMES]
