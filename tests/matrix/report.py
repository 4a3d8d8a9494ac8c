"""Collects what the cells did, and at the end shows it: a table, matrix.json and matrix.html."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import pytest

from common.paths import PATHS, DataPath
from common.virtual_host import inside
from matrix import page
from matrix.cases import CASES, rows


@dataclass
class Cell:
    """What is known of one cell."""

    path: str
    case: str
    verdict: str = page.NOT_RUN
    detail: str = "not selected"
    milliseconds: int | None = None
    payload: int = 0
    carried: dict[str, int] = field(default_factory=dict)
    #: Why the path does not offer it, once that is shown.
    refused: str = ""


CELL = pytest.StashKey[Cell]()
#: What a report from inside a virtual host brings its cell in.
_PROPERTY = "matrix cell"
_REPO = Path(__file__).parents[2]
_LONGEST = 8000  # characters of an error that the page keeps: its end


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=_REPO, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _commit() -> str:
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = commit and _git("status", "--porcelain")
    return f"{commit} with changes" if changed else commit or "unknown"


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _wheel() -> str:
    """The wheel that `artf test` installed, else what is installed here."""
    if os.environ.get("ARTF_WHEEL"):
        return Path(os.environ["ARTF_WHEEL"]).name
    for name in ("tensorflow-cpu", "tensorflow"):
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return "unknown"


def _origin() -> dict[str, str]:
    """What the result was made from, and where."""
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "wheel": _wheel(),
        "processor": f"{_cpu()}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "kernel": platform.release(),
    }


class Recorder:
    """The plugin; `folder` is asked where the files go, once there is something to write."""

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._cells: dict[tuple[str, str], Cell] = {}
        self._ran = False
        self._began = time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Before anything is deselected."""
        self._cells = {(path.name, name): Cell(path.name, name) for path in PATHS for name in CASES}
        for item in items:
            asked = getattr(getattr(item, "callspec", None), "params", {})
            if isinstance(asked.get("path"), DataPath):
                item.stash[CELL] = self._cells[asked["path"].name, asked["case"].name]

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        for item in items:
            if CELL in item.stash and item.get_closest_marker("slow"):
                item.stash[CELL].detail = "slow: runs with --run-slow"

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        outcome: Any = yield
        report: pytest.TestReport = outcome.get_result()
        cell = item.stash.get(CELL, None)
        if cell is None:
            return
        self._ran = True
        if report.failed:
            earlier = f"{cell.detail}\n\n" if cell.verdict == page.FAILED else ""
            cell.verdict = page.FAILED
            cell.detail = earlier + report.longreprtext[-_LONGEST:]
        elif report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            cell.verdict, cell.detail = page.SKIPPED, str(reason)
        elif report.when == "call":
            cell.verdict = page.NOT_OFFERED if cell.refused else page.PASSED
            cell.detail = cell.refused
        if inside():
            report.user_properties = [
                *report.user_properties,
                (_PROPERTY, json.dumps(asdict(cell))),
            ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes over the cell of a test that ran in a virtual host."""
        brought = [value for name, value in report.user_properties if name == _PROPERTY]
        if inside() or not brought:
            return
        cell = Cell(**json.loads(str(brought[-1])))
        self._ran = True
        self._cells[cell.path, cell.case] = cell
        # Only this table wants it.
        report.user_properties = [each for each in report.user_properties if each[0] != _PROPERTY]

    def result(self) -> page.Result:
        """All that was seen, as matrix.json has it."""
        cells = [asdict(cell) for cell in self._cells.values()]
        for cell in cells:
            del cell["refused"]
        return {
            "origin": _origin(),
            "seconds": round(time.monotonic() - self._began, 1),
            "paths": [
                {"name": path.name, "protocol": path.protocol, "environment": dict(path.env)}
                | {"small": path.small, "large": path.large}
                for path in PATHS
            ],
            "cases": [
                {"name": case.name, "group": case.group, "proves": case.proves} for case in rows()
            ],
            "cells": cells,
            "counts": page.count(cells),
        }

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self._ran or inside():
            return
        result = self.result()
        folder = self._folder()
        folder.mkdir(parents=True, exist_ok=True)
        data, html = folder / "matrix.json", folder / "matrix.html"
        data.write_text(json.dumps(result, indent=1) + "\n")
        html.write_text(page.html(result))
        terminalreporter.section("matrix")
        terminalreporter.write(page.table(result, terminalreporter.hasmarkup))
        terminalreporter.line(f"{html}\n{data}")
