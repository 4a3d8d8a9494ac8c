"""Options and markers that every suite shares; nothing here imports TensorFlow."""

from __future__ import annotations

import pytest

from common.protocols import select


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--protocols",
        default="",
        help="comma-separated server protocols to test (default: all of common/protocols.py)",
    )
    parser.addoption("--run-slow", action="store_true", help="also run tests marked slow")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: minutes long; deselected unless --run-slow is given")
    try:
        select(config.getoption("--protocols"))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--run-slow"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "protocol" in metafunc.fixturenames:
        names = select(metafunc.config.getoption("--protocols"))
        metafunc.parametrize("protocol", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def protocol(request: pytest.FixtureRequest) -> str:
    """The server protocol under test."""
    return str(request.param)
