"""Runs the suites, each in the environment it needs, and adds them up."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from artf_cli import bootstrap, build, interpreters, venv
from artf_cli.console import note
from artf_cli.errors import ArtfError
from artf_cli.paths import REPO, cache_dir
from artf_cli.testing import children
from artf_cli.testing.report import Result
from artf_cli.testing.suites import (
    GRPC_SUITES,
    NOTHING,
    PART_MINUTES,
    Suite,
    batches,
    chosen,
)

_OVERWRITE_FREED = "glibc.malloc.perturb=165"
_NO_TESTS_COLLECTED = 5
#: Suites that run at the same time, at most: they wait for servers and for time limits a third of
#: their time.
_AT_ONCE = len(os.sched_getaffinity(0)) + 1


@dataclass
class Needs:
    """What suites need built: each thing once, when the first asks."""

    base: str
    python: str | None
    _wheel: Path | None = field(default=None, repr=False)

    def of(self, suite: Suite) -> tuple[Path, dict[str, str]]:
        """The Python that a suite runs on, and the variables that name what was built for it."""
        built: dict[str, str] = {}
        if suite.needs == GRPC_SUITES:
            built["ARTF_GRPC_SUITES"] = str(build.grpc_suites(self.base, self.python))
        elif suite.needs != NOTHING:
            built["ARTF_WHEEL"] = str(self.wheel())
        if suite.installed:
            return venv.make(self.wheel(), "runtime-tests"), built
        return bootstrap.environment("dev"), built

    def wheel(self) -> Path:
        self._wheel = self._wheel or build.build(self.base, self.python).wheel
        return self._wheel


def run(
    names: Sequence[str],
    needs: Needs,
    pytest_arguments: Sequence[str],
    *,
    full: bool = False,
    part: str = "",
    done: Result | None = None,
) -> Result:
    """Runs the suites of these names (none: all) in their fixed order.

    Suites that `done` has are not run again, and what it counted is counted. With `full` nothing
    is left out, or with `part` what is in the other parts, and a part must end in time.
    Raises ArtfError when pytest itself cannot run, when the arguments select no test, and before
    all else when no Python here can run the wheel that the suites are for.
    """
    result = done or Result()
    suites = [suite for suite in chosen(names, part) if suite.name not in result.suites]
    if any(suite.installed for suite in suites):
        interpreters.need(needs.python or build.default_python())
    deadline = time.monotonic() + PART_MINUTES * 60 if part else None
    # With arguments of one's own (-x, --pdb) each suite has the terminal to itself.
    groups = [[suite] for suite in suites] if pytest_arguments else batches(suites)
    for number, group in enumerate(groups):
        try:
            _run_group(group, needs, _arguments(full, part), pytest_arguments, result, deadline)
        except children.OutOfTime as error:
            late = [group[index] for index in error.late]
            for suite in [*late, *(each for rest in groups[number + 1 :] for each in rest)]:
                result.fail(suite.name, f"not over within {PART_MINUTES} minutes of part {part}")
            break
    if result.passed + result.failed + result.skipped == 0:
        raise ArtfError("no test was selected", "check what stands after --")
    return result


def _arguments(full: bool, part: str) -> list[str]:
    """What tests/conftest.py is told."""
    return [
        # With --full each server has a Python of its own.
        "--full" if full else "--warm-servers",
        *([f"--part={part}"] if part else []),
    ]


def _run_group(
    group: Sequence[Suite],
    needs: Needs,
    settings: Sequence[str],
    arguments: Sequence[str],
    result: Result,
    deadline: float | None,
) -> None:
    places = [needs.of(suite) for suite in group]
    if len(group) > 1:
        names = ", ".join(suite.name for suite in group)
        note(f"suites {names}, side by side: each one's output is shown when it ends")
    else:
        note(f"suite {group[0].name}")
    with tempfile.TemporaryDirectory(prefix="artf-test-") as folder:
        roots = [Path(folder) / suite.name for suite in group]
        for root in roots:
            root.mkdir()
        commands = [
            _command(
                suite,
                *place,
                root,
                [*settings, *arguments],
                len(group) > 1,
                # Of its own: servers bind a port a while after it was found free.
                f"{index}/{len(group)}",
            )
            for index, (suite, place, root) in enumerate(zip(group, places, roots))
        ]
        try:
            ends = children.run(commands, deadline, _AT_ONCE)
        except children.OutOfTime:
            for suite, root in zip(group, roots):
                if (root / "report.xml").exists():
                    result.add(suite.name, root / "report.xml", root / "left-out.json")
            raise
        for suite, root, end in zip(group, roots, ends):
            _add(suite, root, end.status, bool(arguments), result)
            result.took(suite.name, end.wall_s, end.cpu_s)


def _command(
    suite: Suite,
    python: Path,
    built: dict[str, str],
    root: Path,
    arguments: Sequence[str],
    apart: bool,
    ports: str,
) -> children.Command:
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **built}
    env.setdefault("ARTF_REPORTS", str(cache_dir() / "reports"))
    env["ARTF_TEST_PORTS"] = ports
    if suite.perturbed:
        env.setdefault("GLIBC_TUNABLES", _OVERWRITE_FREED)
    # The tests of artf import it; those of the wheel must not see this tree.
    env["PYTHONPATH"] = "" if suite.installed else str(REPO / "scripts")
    words = [str(python), "-m", "pytest", suite.folder, "-p", "no:cacheprovider"]
    words += [f"--junitxml={root / 'report.xml'}", f"--left-out={root / 'left-out.json'}"]
    words += [f"--parts={','.join(suite.parts)}", *arguments]
    log = root / "output" if apart else None
    return children.Command(words, env, log, f"suite {suite.name}")


def _add(suite: Suite, root: Path, status: int, own: bool, result: Result) -> None:
    """Counts what a suite did, which ended with `status`; `own`: with arguments of one's own."""
    report = root / "report.xml"
    before = len(result.failures)
    if report.exists():
        result.add(suite.name, report, root / "left-out.json")
    if status == _NO_TESTS_COLLECTED:
        # Arguments may select in other suites alone.
        if not own:
            result.fail(suite.name, "no test was collected")
    elif not report.exists() or (status != 0 and len(result.failures) == before):
        raise ArtfError(f"pytest ended with {status} in suite {suite.name}", "see above")
