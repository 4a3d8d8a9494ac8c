"""Runs tests inside a virtual RDMA host: those with the marker `virtual_host(driver)`.

All tests of a driver run in one host, which boots when the first of them is due; they come after
all others. This pytest collects them. One inside the host runs them and writes its reports, a line
of JSON each, into a folder that both see; this one passes them on as its own.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest

#: The driver of the virtual host that this process runs in; not set outside of one.
INSIDE = "ARTF_INSIDE_HOST"
DRIVERS = ("rxe", "siw")
#: How many times as long something may take in a virtual host, where all share one slow processor.
SLOWER = 5
_MARKER = "virtual_host"
_FOLDER = "ARTF_HOST_FOLDER"
_REPO = Path(__file__).parents[2]
_LEASH = _REPO / "scripts/artf_cli/runtime/leash.py"
# Room for three servers and a client; what is not touched takes none of this machine's memory.
_MEMORY_MB = 6144
# Until servers that were told to end have given back their memory.
_SPARE_S = 30.0
# The kernel may have to be compiled first.
_BOOT_S = 1800.0
# TensorFlow's modules come through one slow processor before the first test is under way.
_COLLECT_S = 300.0
# Beyond a test's own limit, which counts inside.
_LATE_S = 60.0
_END_S = 30.0
_POLL_S = 0.05
_TAIL = 4000


_RELEASES = pytest.StashKey[list[Callable[[], None]]]()


def before_hosts(config: pytest.Config, release: Callable[[], None]) -> None:
    """Has `release` called when the first host is to start, which wants this machine's memory.

    No test of this side runs after that.
    """
    config.stash.setdefault(_RELEASES, []).append(release)


def inside() -> str:
    """The driver of the virtual host that this process runs in; empty outside of one."""
    return os.environ.get(INSIDE, "")


def command(driver: str, *words: str, shared: Sequence[Path] = (), memory_mb: int = 0) -> list[str]:
    """What runs `words` in a virtual host, for a Python without artf's modules, too."""
    share = [word for folder in shared for word in ("--share", str(folder))]
    memory = ["--memory", str(memory_mb)] if memory_mb else []
    return [str(_REPO / "scripts/artf"), "vm", "--driver", driver, *memory, *share, *words]


def environment() -> dict[str, str]:
    """That of `command()`: artf finds its own modules."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def _last_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-2:]) or "it says nothing"


@functools.cache
def why_none(driver: str = DRIVERS[0]) -> str:
    """Why no virtual host of this driver boots here; empty when one does, which it did just now."""
    done = subprocess.run(
        command(driver, "--", "true"),
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_BOOT_S,
    )
    return _last_lines(done.stderr) if done.returncode else ""


def _without(why: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"no virtual RDMA host: {why}", pytrace=False)
    pytest.skip(f"no virtual RDMA host: {why}")


def need(driver: str = DRIVERS[0]) -> None:
    """Skips the test with the reason where no virtual host boots; in CI it fails."""
    if why := why_none(driver):
        _without(why)


def driver_of(item: pytest.Item) -> str:
    """In a host of which driver a test is to run; empty: here."""
    marker = item.get_closest_marker(_MARKER)
    if marker is None:
        return ""
    if len(marker.args) != 1 or marker.args[0] not in DRIVERS:
        raise pytest.UsageError(f"{item.nodeid}: {_MARKER}() takes one of {', '.join(DRIVERS)}")
    return str(marker.args[0])


def _limit(item: pytest.Item) -> float:
    """Seconds that a test may take, as pytest-timeout has it; 0: any time."""
    marker = item.get_closest_marker("timeout")
    if marker is not None:
        return float(marker.args[0] if marker.args else marker.kwargs.get("timeout", 0))
    try:
        return float(item.config.getini("timeout") or 0)
    except ValueError:  # without pytest-timeout
        return 0.0


def _spare_mb() -> int:
    return min(psutil.virtual_memory().available, shutil.disk_usage("/dev/shm").free) >> 20


def _most_mb() -> int:
    return min(psutil.virtual_memory().total, shutil.disk_usage("/dev/shm").total) >> 20


def memory_mb(items: Iterable[pytest.Item], patience_s: float = _SPARE_S) -> int:
    """MiB that these tests want for their host, where this machine has it to spare.

    It waits for that: what ran before may not have given back yet what it had.
    """
    markers = [marker for item in items for marker in item.iter_markers(_MARKER)]
    wanted = max(int(marker.kwargs.get("memory_mb", 0)) for marker in markers)
    if wanted <= _MEMORY_MB:
        return _MEMORY_MB
    # In vain where there never is so much.
    limit = time.monotonic() + (patience_s if wanted <= _most_mb() else 0)
    while (spare := _spare_mb()) < wanted and time.monotonic() < limit:
        time.sleep(_POLL_S)
    return wanted if wanted <= spare else _MEMORY_MB


class _Host:
    """A virtual host that runs tests, from its start to its end."""

    def __init__(self, driver: str, config: pytest.Config, items: Sequence[pytest.Item]) -> None:
        self.driver = driver
        self._folder = Path(tempfile.mkdtemp(prefix="artf-host-tests-"))
        self._console = self._folder / "console"
        self._read = 0
        self._known: dict[str, list[dict[str, Any]]] = {}
        (self._folder / "selected").write_text(json.dumps([item.nodeid for item in items]))
        leash = [sys.executable, "-I", "-S", str(_LEASH), str(os.getpid())]
        words = ["--timeout", "86400", "--", *self._words(config, items)]
        with self._console.open("wb") as console:
            self._process = subprocess.Popen(
                [
                    *leash,
                    *command(driver, *words, shared=[self._folder], memory_mb=memory_mb(items)),
                ],
                env=environment(),
                cwd=config.rootpath,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )

    def _words(self, config: pytest.Config, items: Sequence[pytest.Item]) -> list[str]:
        """The command inside: that it began shows in a file, and its environment is ours."""
        env = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        env.update({INSIDE: self.driver, _FOLDER: str(self._folder), "PYTHONUNBUFFERED": "1"})
        words = ["bash", "-c", 'echo >"$0" && exec "$@"', str(self._folder / "began"), "env", "-i"]
        words += [f"{name}={value}" for name, value in env.items()]
        words += [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        words.append(f"--rootdir={config.rootpath}")
        if config.inipath is not None:
            words += ["-c", str(config.inipath)]
        # What is left out was left out here.
        if hasattr(config.option, "full"):
            words.append("--full")
        if getattr(config.option, "warm_servers", False):
            words.append("--warm-servers")
        if protocols := getattr(config.option, "protocols", ""):
            words.append(f"--protocols={protocols}")
        return words + list(dict.fromkeys(str(item.path) for item in items))

    def began(self) -> bool:
        return (self._folder / "began").exists()

    def ended(self) -> bool:
        return self._process.poll() is not None

    def said(self) -> str:
        """The end of what the host and the tests in it wrote."""
        return self._console.read_text(errors="replace")[-_TAIL:]

    def _look(self) -> None:
        path = self._folder / "reports"
        if not path.exists():
            return
        with path.open("rb") as stream:
            stream.seek(self._read)
            for line in stream:
                # The last one may be half written.
                if line.endswith(b"\n"):
                    self._read += len(line)
                    report = json.loads(line)
                    self._known.setdefault(report["nodeid"], []).append(report)

    def reports(self, item: pytest.Item) -> tuple[list[dict[str, Any]], str]:
        """A test's reports, once they are all there, and else why some are missing."""
        limit = _limit(item)
        boot = time.monotonic() + _BOOT_S
        while not self.began() and not self.ended():
            if time.monotonic() > boot:
                self.end(0)
                return [], f"did not boot within {_BOOT_S:g} s"
            time.sleep(_POLL_S)
        wait = limit + (_LATE_S if self._known else _COLLECT_S)
        late = time.monotonic() + wait
        while True:
            ended = self.ended()
            self._look()
            found = self._known.get(item.nodeid, [])
            if any(report["when"] == "teardown" for report in found):
                return found, ""
            if ended:
                status = self._process.returncode
                return found, f"ended with status {status} before this test had"
            if limit and time.monotonic() > late:
                self.end(0)
                return found, f"told nothing of this test for {wait:g} s"
            time.sleep(_POLL_S)

    def end(self, seconds: float) -> None:
        """Waits so long for its end, then ends it."""
        for then in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(seconds)
                return
            except subprocess.TimeoutExpired:
                then()
                seconds = _END_S
        self._process.wait()

    def remove(self) -> None:
        self.end(_END_S if self.began() else 0)
        shutil.rmtree(self._folder, ignore_errors=True)


class Outside:
    """The plugin of the pytest that collects."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._hosts: dict[str, _Host] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        # The last: no fixture of this side is set up after them, and servers that wait for work
        # of theirs do not disturb a time limit of another test.
        order = ("", *DRIVERS)
        session.items.sort(key=lambda item: order.index(driver_of(item)))

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_timeout_set_timer(self, item: pytest.Item) -> bool | None:
        """No timer: it would count what the tests before this one take."""
        return True if driver_of(item) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        driver = driver_of(item)
        if not driver:
            return None
        if driver not in self._hosts:
            items = [each for each in item.session.items if driver_of(each) == driver]
            # What ran before, here and in the host of another driver, leaves its memory to it.
            self._end_hosts()
            while releases := self._config.stash.get(_RELEASES, []):
                releases.pop()()
            self._hosts[driver] = _Host(driver, self._config, items)
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._replayed(item, self._hosts[driver]):
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _replayed(self, item: pytest.Item, host: _Host) -> Iterator[pytest.TestReport]:
        found, missing = host.reports(item)
        hook = self._config.hook
        for data in found:
            # A skip's place and reason, of which JSON makes a list.
            if isinstance(data["longrepr"], list):
                data["longrepr"] = tuple(data["longrepr"])
            yield hook.pytest_report_from_serializable(config=self._config, data=data)
        if not missing:
            return
        began = host.began()

        def explain() -> None:
            if not began:
                _without(_last_lines(host.said()))
            pytest.fail(
                f"the virtual RDMA host ({host.driver}) {missing}; the end of its console:\n"
                f"{host.said()}",
                pytrace=False,
            )

        def made(when: Any, what: Any) -> pytest.TestReport:
            call = pytest.CallInfo.from_call(what, when=when)
            report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
            return report

        yield made("call" if found else "setup", explain)
        yield made("teardown", lambda: None)

    def pytest_sessionfinish(self) -> None:
        self._end_hosts()

    def _end_hosts(self) -> None:
        while self._hosts:
            self._hosts.popitem()[1].remove()


class Inside:
    """The plugin of the pytest in the host: runs what was selected outside, and tells of it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._folder = Path(os.environ[_FOLDER])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        selected = set(json.loads((self._folder / "selected").read_text()))
        items[:] = [item for item in items if item.nodeid in selected]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self._config.hook
        data = hook.pytest_report_to_serializable(config=self._config, report=report)
        with (self._folder / "reports").open("a") as stream:
            stream.write(json.dumps(data) + "\n")
            stream.flush()
            # Out of this host's memory, before the host can die.
            os.fsync(stream.fileno())


def register(config: pytest.Config) -> None:
    """For pytest_configure()."""
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(driver, memory_mb=0): runs in a virtual RDMA host of this driver, rxe or siw, "
        "with so much memory where there is that much to spare",
    )
    plugin = Inside(config) if inside() else Outside(config)
    config.pluginmanager.register(plugin, "virtual-host")
