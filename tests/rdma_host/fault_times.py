"""What follows a fault in a virtual RDMA host, and after what time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from artf_cli.bench.figures import FaultRow

_FIXTURE = "fault_times"


class FaultTimes:
    """Seconds from faults, or from what is named, to what follows, as rows of a table."""

    def __init__(self) -> None:
        self.rows: list[FaultRow] = []

    def add(self, fault: str, driver: str, seen: str, *seconds: str | float) -> None:
        """`seen` followed after `seconds`, one or more of them."""
        said = [round(float(each), 4) for each in seconds]
        print(f"{driver}: {fault}: {seen} after {said} s")
        self.rows.append({"fault": fault, "driver": driver, "seen": seen, "seconds": said})


class FaultRecorder:
    """A pytest plugin that keeps the rows when every test that adds some has passed.

    A part of the tests, or of the rows, must not stand for all of them: after a failure, a skip or
    an interruption what was kept before stays.
    """

    def __init__(
        self, times: FaultTimes, keep: Callable[[list[FaultRow]], None], command: str
    ) -> None:
        self._times = times
        self._keep = keep
        self._command = command
        self._missing: set[str] = set()
        self._kept = False

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        if timed := _timed(items):
            raise pytest.UsageError(
                f"--record-faults needs {len(timed)} tests more than were chosen: {self._command}"
            )

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._missing = _timed(session.items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._missing.discard(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK and self._missing:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif exitstatus == pytest.ExitCode.OK:
            self._keep(self._times.rows)
            self._kept = True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._kept:
            terminalreporter.write_line(
                "the times after faults are not kept: not every test has passed", red=True
            )


def _timed(items: list[pytest.Item]) -> set[str]:
    return {each.nodeid for each in items if _FIXTURE in getattr(each, "fixturenames", ())}
