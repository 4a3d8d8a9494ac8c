"""`artf test`: runs the suites, each in the environment it needs, and adds them up."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from artf_cli import bootstrap, build, venv
from artf_cli.console import note
from artf_cli.errors import ArtfError
from artf_cli.paths import REPO

# In this order: cheap first. Of these the first four need nothing built.
_CHEAP = ("lint", "patches", "units", "conformance")
_GRPC = "grpc-suites"
SUITES = (*_CHEAP, "wheel", "containers", "recv", "tf2", "faults", _GRPC)
# They run beside artf, the others on the installed wheel.
_BESIDE = (*_CHEAP, "wheel", "containers", _GRPC)
# Here freed memory is overwritten, so that what still looks at it fails at once (glibc's manual).
_PERTURBED = ("recv", "tf2", "faults", _GRPC)
_OVERWRITE_FREED = "glibc.malloc.perturb=165"
_NO_TESTS_COLLECTED = 5
# The longest fixture to take down is the container suite's engine.
_LEAVE_S = 90.0


@dataclass
class Result:
    """What all suites together did."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    suites: dict[str, dict[str, float]] = field(default_factory=dict)
    skips: list[dict[str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def run(
    suites: Sequence[str], base: str, python: str | None, pytest_arguments: Sequence[str]
) -> Result:
    """Runs `suites` in their fixed order; what they need is built first.

    Raises ArtfError when pytest itself cannot run, or when the arguments select no test.
    """
    result = Result()
    wheel: Path | None = None
    for suite in SUITES:
        if suite not in suites:
            continue
        built: dict[str, str] = {}
        if suite == _GRPC:
            built["ARTF_GRPC_SUITES"] = str(build.grpc_suites(base, python))
        elif suite not in _CHEAP:
            wheel = wheel or build.build(base, python).wheel
            built["ARTF_WHEEL"] = str(wheel)
        if suite in _BESIDE:
            interpreter = bootstrap.environment("dev")
        else:
            assert wheel is not None
            interpreter = venv.make(wheel, "runtime-tests")
        note(f"suite {suite}")
        _run_suite(suite, interpreter, built, pytest_arguments, result)
    if result.passed + result.failed + result.skipped == 0:
        raise ArtfError("no test was selected", "check what stands after --")
    return result


def _run_suite(
    suite: str, python: Path, built: dict[str, str], arguments: Sequence[str], result: Result
) -> None:
    with tempfile.TemporaryDirectory(prefix="artf-test-") as folder:
        report = Path(folder) / "report.xml"
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **built}
        if suite in _PERTURBED:
            env.setdefault("GLIBC_TUNABLES", _OVERWRITE_FREED)
        # The tests of artf import it; those of the wheel must not see this tree.
        env["PYTHONPATH"] = str(REPO / "scripts") if suite in _BESIDE else ""
        folder_of_tests = f"tests/{suite.replace('-', '_')}"
        command = [str(python), "-m", "pytest", folder_of_tests, f"--junitxml={report}"]
        command += ["-p", "no:cacheprovider", *arguments]
        status = _run_pytest(command, env)
        if status == _NO_TESTS_COLLECTED:
            return
        if not report.exists():
            raise ArtfError(f"pytest ended with {status} in suite {suite}", "see above")
        _add(suite, report, result)
        if status != 0 and not result.failures:
            raise ArtfError(f"pytest ended with {status} in suite {suite}", "see above")


def _run_pytest(command: Sequence[str], env: Mapping[str, str]) -> int:
    """The exit status; when this process is interrupted, pytest gets time to take down fixtures."""
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    if ignored:
        # A job in the background starts so, and pytest would ignore it, too.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        process = subprocess.Popen(command, cwd=REPO, env=env)
    finally:
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return process.wait()
    except BaseException as error:
        # A Ctrl-C has reached the whole foreground, pytest too, and a second one would stop it.
        if not isinstance(error, KeyboardInterrupt):
            process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LEAVE_S)
        raise
    finally:
        process.kill()
        process.wait()


def _add(suite: str, report: Path, result: Result) -> None:
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    seconds = 0.0
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '')}::{case.get('name', '')}"
        seconds += float(case.get("time", 0))
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            counts["failed"] += 1
            result.failures.append(name)
        elif skip is not None:
            counts["skipped"] += 1
            result.skips.append({"test": name, "reason": skip.get("message", "")})
        else:
            counts["passed"] += 1
    result.passed += counts["passed"]
    result.failed += counts["failed"]
    result.skipped += counts["skipped"]
    result.suites[suite] = {**counts, "seconds": round(seconds, 1)}
