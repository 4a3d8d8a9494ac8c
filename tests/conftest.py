"""Options and markers that every suite shares; nothing here imports TensorFlow."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from common import virtual_host
from common.protocols import STOCK, STOCK_CONTROLS, select, stock_control

_REASON = pytest.StashKey[str]()
_LEFT_OUT = pytest.StashKey["Counter[str]"]()
# Of STOCK_CONTROLS, what was collected, and what of it is a case over stock.
_NAMED = pytest.StashKey["set[str]"]()
_KEPT = pytest.StashKey["set[str]"]()
_MARKERS = (
    "slow: minutes long, or a variation; deselected unless --run-slow or --full is given",
    "part(name): belongs to this part of `artf test --full` instead of its suite's first one",
)
#: Why a case is left out; testing/full.py knows the last one.
SLOW = "slow (--run-slow)"
CONTROL = "stock controls (--full)"
ELSEWHERE = "in another part of --full"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--protocols",
        default="",
        help="comma-separated server protocols to test (default: all of common/protocols.py)",
    )
    parser.addoption("--run-slow", action="store_true", help="also run tests marked slow")
    parser.addoption(
        "--full", action="store_true", help="leave out nothing: slow tests and stock controls"
    )
    parser.addoption(
        "--warm-servers", action="store_true", help="fork servers from one Python: common/warm.py"
    )
    parser.addoption("--part", default="", help="run what belongs to this part of --full")
    parser.addoption("--parts", default="", help="the parts that have tests of this suite")
    parser.addoption("--left-out", default="", help="a file that gets what was left out, and why")


def pytest_configure(config: pytest.Config) -> None:
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    virtual_host.register(config)
    config.stash[_LEFT_OUT] = Counter()
    config.stash[_NAMED], config.stash[_KEPT] = set(), set()
    try:
        select(config.getoption("--protocols"))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def _part(item: pytest.Item, parts: list[str]) -> str:
    """The part of --full that a test belongs to; a name that no part has is an error."""
    marker = item.get_closest_marker("part")
    if marker is None:
        return parts[0]
    if marker.args[0] not in parts:
        raise pytest.UsageError(f"{item.nodeid}: its suite has no part {marker.args[0]}")
    return str(marker.args[0])


def _over_stock(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and (
        hasattr(item, "callspec") and item.callspec.params.get("protocol") == STOCK
    )


def _control(item: pytest.Item) -> str:
    """Why a case over stock runs in each run, if it does."""
    assert isinstance(item, pytest.Function)
    return stock_control(item.originalname, item.callspec.id)


def _reason(item: pytest.Item) -> str:
    """Why a test is left out; empty when it is not."""
    option = item.config.getoption
    parts = [name for name in option("--parts").split(",") if name]
    # Always, so that a wrong name is seen before the next full run.
    part = _part(item, parts) if parts else ""
    if option("--part") and part != option("--part"):
        return ELSEWHERE
    if item.get_closest_marker("slow") and not (option("--run-slow") or option("--full")):
        return SLOW
    if _over_stock(item) and not (option("--protocols") or option("--full") or _control(item)):
        return CONTROL
    return ""


def pytest_itemcollected(item: pytest.Item) -> None:
    if isinstance(item, pytest.Function) and item.originalname in STOCK_CONTROLS:
        item.config.stash[_NAMED].add(item.originalname)
        if _over_stock(item) and _control(item):
            item.config.stash[_KEPT].add(item.originalname)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    named, kept = config.stash[_NAMED], config.stash[_KEPT]
    # Whole suites only: of a single case that is named the others are not collected.
    if named != kept and config.getoption("--parts") and not config.getoption("--protocols"):
        raise pytest.UsageError(f"STOCK_CONTROLS: no case of {', '.join(sorted(named - kept))}")
    reasons = {item: _reason(item) for item in items}
    out = [item for item in items if reasons[item]]
    for item in out:
        item.stash[_REASON] = reasons[item]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if not reasons[item]]


def pytest_deselected(items: list[pytest.Item]) -> None:
    # Those without a reason of ours were left out by pytest's own -k or -m.
    for item in items:
        item.config.stash[_LEFT_OUT][item.stash.get(_REASON, "")] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--left-out")
    if path:
        Path(path).write_text(json.dumps(session.config.stash[_LEFT_OUT]))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for reason, count in sorted(config.stash[_LEFT_OUT].items()):
        if reason:
            terminalreporter.write_line(f"{count} deselected: {reason}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "protocol" in metafunc.fixturenames:
        names = select(metafunc.config.getoption("--protocols"))
        metafunc.parametrize("protocol", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def protocol(request: pytest.FixtureRequest) -> str:
    """The server protocol under test."""
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def _warm_servers(request: pytest.FixtureRequest) -> Iterator[None]:
    if not request.config.getoption("--warm-servers"):
        yield
        return
    from common.processes import child_env
    from common.warm import WARM

    WARM.allow(child_env())
    yield
    WARM.close()
