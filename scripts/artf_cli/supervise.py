"""Runs child processes so that none is left behind, whatever ends them or us.

Every child is the leader of a session of its own, keeps its output in files, and is tied to us by
`runtime/leash.py`: the kernel kills it when the thread that started it ends, however it ends. So
start children from a thread that outlives them (the main thread).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, Optional, Union

import psutil

from artf_cli.errors import ArtfError
from artf_cli.paths import cache_dir

# What signal.getsignal returns and signal.signal takes.
_Handler = Union[Callable[[int, Optional[FrameType]], Any], int, None]

#: What ties a child to the thread that starts it.
LEASH = Path(__file__).with_name("runtime") / "leash.py"
_POLL_S = 0.05
_KEPT_LOGS = 10
# TensorFlow's and glog's own chatter: `2024-01-01 00:00:00.1: I …` and `WARNING:…`.
_CHATTER = re.compile(r"^(\d{4}-\d\d-\d\d [\d:.]+: [IW] |WARNING: ?|[IW]\d{4} )")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b(: |$)")


def last_lines(text: str, most: int = 3, width: int = 500) -> str:
    """What a user needs of a standard error: the exception, else the last lines, on one line."""
    lines = [line.rstrip() for line in text.splitlines()]
    lines = [line for line in lines if line.strip() and not _CHATTER.match(line)]
    found = [i for i, line in enumerate(lines) if _EXCEPTION.match(line)]
    if found:
        # What follows an exception indented is a trace of where the graph was built.
        rest = [line for line in lines[found[-1] + 1 :] if not line.startswith((" ", "\t"))]
        lines = [lines[found[-1]], *rest][:most]
    text = " | ".join(line.strip() for line in lines[-most:])
    return text if len(text) <= width else text[: width - 1] + "…"


@contextmanager
def log_folder(kind: str) -> Iterator[Path]:
    """A new folder for logs in the cache; it stays, for the cure to name, when the block fails."""
    parent = cache_dir() / "logs"
    parent.mkdir(exist_ok=True)
    # The names begin with the kind and the time; one kind does not push out another's.
    for path in sorted(parent.glob(f"{kind}-*"))[:-_KEPT_LOGS]:
        shutil.rmtree(path, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}-", dir=parent))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


class Child:
    """A process that `Group.start` made; `stdout` and `stderr` are the files of its output."""

    def __init__(self, name: str, process: subprocess.Popen[str], logs: Path) -> None:
        self.name = name
        self.pid = process.pid
        self.stdout = logs / f"{name}.out"
        self.stderr = logs / f"{name}.err"
        self.lines: deque[str] = deque()
        self.reader: threading.Thread | None = None
        self.process = process

    def status(self) -> int | None:
        """The exit status as subprocess has it (negative: the signal); None while it runs.

        The process is not reaped, so its pid, which names its session, stays ours.
        """
        if self.process.returncode is not None:
            return self.process.returncode
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        ended = os.waitid(os.P_PID, self.pid, flags)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def kill(self) -> None:
        """Ends it at once; what it started is the group's to end."""
        os.kill(self.pid, signal.SIGKILL)

    def send(self, line: str) -> None:
        """Writes a line to its standard input; a child that is gone shows up in `Group.read`."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def failure(self, what: str) -> ArtfError:
        """The error that names this child, what happened and the end of its standard error."""
        with self.stderr.open("rb") as stream:
            stream.seek(max(0, self.stderr.stat().st_size - 65536))
            said = last_lines(stream.read().decode(errors="replace"))
        return ArtfError(
            f"{self.name} {what}{': ' if said else ''}{said}", f"read its log {self.stderr}"
        )


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


class Group:
    """Child processes that live no longer than the `with` block that holds them.

    At the end of the block, and on SIGTERM, SIGHUP and Ctrl-C, every child and all that they
    started get SIGTERM, then SIGKILL after `grace_s` seconds.
    """

    def __init__(self, logs: Path, grace_s: float = 3.0) -> None:
        self._logs = logs
        self._grace_s = grace_s
        self._changed = threading.Condition()
        self._handlers: dict[int, _Handler] = {}
        self.children: list[Child] = []

    def __enter__(self) -> Group:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                # A handler of someone else's (nohup's too) stays: only the default would skip
                # the clean-up.
                if signal.getsignal(number) == signal.SIG_DFL:
                    signal.signal(number, self._on_signal)
                    self._handlers[number] = signal.SIG_DFL
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        talk: bool = False,
        pass_fds: Sequence[int] = (),
    ) -> Child:
        """Starts `command` (its first word a path); with `talk`, `read` and `send` reach it.

        It inherits the descriptors `pass_fds` beside its own three.
        Its output goes to NAME.out and NAME.err in the group's folder. Raises ArtfError when the
        program does not exist.
        """
        words = [str(word) for word in command]
        if not os.access(words[0], os.X_OK):
            raise ArtfError(f"{name}: {words[0]} cannot be run", "check that the path exists")
        leash = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid())]
        with (
            (self._logs / f"{name}.out").open("wb") as out,
            (self._logs / f"{name}.err").open("wb") as err,
        ):
            process = subprocess.Popen(
                [*leash, *words],
                stdin=subprocess.PIPE if talk else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talk else out,
                stderr=err,
                env=env,
                cwd=cwd,
                text=True,
                errors="replace",
                start_new_session=True,
                pass_fds=pass_fds,
            )
        child = Child(name, process, self._logs)
        self.children.append(child)
        if process.stdout is not None:
            child.reader = threading.Thread(
                target=self._follow, args=(child, process.stdout), daemon=True
            )
            child.reader.start()
        return child

    def _follow(self, child: Child, pipe: IO[str]) -> None:
        with pipe, child.stdout.open("w") as log:
            for line in pipe:
                log.write(line)
                log.flush()
                with self._changed:
                    child.lines.append(line.rstrip("\n"))
                    self._changed.notify_all()

    def check(self) -> None:
        """Raises the ArtfError of a child that failed; one killed by a signal comes first."""
        ended = [(child.status(), child) for child in self.children]
        failed = [(status, child) for status, child in ended if status]
        for status, child in sorted(failed, key=lambda pair: pair[0]):
            raise child.failure(_ending(status))

    def read(self, children: Iterable[Child], timeout_s: float) -> tuple[Child, str]:
        """The next line of one of `children`, in no fixed order among them.

        Raises ArtfError when any child of the group fails, when one of these ends with nothing
        left to read, or when `timeout_s` seconds pass.
        """
        wanted = list(children)
        limit = time.monotonic() + timeout_s
        while True:
            # Before the lines: what a child wrote before it ended is read first.
            gone = [child for child in wanted if child.status() is not None and not _busy(child)]
            with self._changed:
                for child in wanted:
                    if child.lines:
                        return child, child.lines.popleft()
                self.check()
                for child in gone:
                    raise child.failure("ended before it answered")
                left = limit - time.monotonic()
                if left <= 0:
                    raise wanted[0].failure(f"gave no answer within {timeout_s:.0f} s")
                self._changed.wait(min(left, _POLL_S))

    def wait(self, timeout_s: float) -> None:
        """Waits until all children have ended well; raises ArtfError otherwise, or in time."""
        limit = time.monotonic() + timeout_s
        while True:
            running = [child for child in self.children if child.status() is None]
            self.check()
            if not running:
                return
            if time.monotonic() > limit:
                raise running[0].failure(f"did not end within {timeout_s:.0f} s")
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Ends every child and its descendants; repeated calls do nothing."""
        # An impatient second Ctrl-C must not leave half of them running.
        restore: dict[int, _Handler] = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                restore[number] = signal.getsignal(number)
                signal.signal(number, signal.SIG_IGN)
        try:
            self._end()
        finally:
            for changed, handler in {**restore, **self._handlers}.items():
                signal.signal(changed, handler)
            self._handlers = {}

    def _end(self) -> None:
        limit = time.monotonic() + self._grace_s
        told: set[psutil.Process] = set()
        # Again until none is left: a process may fork between the look and the signal.
        while victims := self._alive():
            for victim in victims:
                try:
                    if time.monotonic() > limit:
                        victim.kill()
                    elif victim not in told:
                        victim.terminate()
                        told.add(victim)
                except psutil.NoSuchProcess:
                    pass
            time.sleep(_POLL_S)
        for child in self.children:
            child.process.wait()
            if child.process.stdin is not None:
                # What was still buffered for it is of no use now.
                with suppress(BrokenPipeError):
                    child.process.stdin.close()
            if child.reader is not None:
                child.reader.join()
        self.children = []

    def _alive(self) -> set[psutil.Process]:
        """The live processes of the children's sessions, and the children's descendants."""
        leaders = {child.pid for child in self.children if child.process.returncode is None}
        found: set[psutil.Process] = set()
        if not leaders:
            return found
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) in leaders:
                    found.add(process)
                if process.pid in leaders:
                    found.update(process.children(recursive=True))
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return {process for process in found if _runs(process)}


def _busy(child: Child) -> bool:
    return child.reader is not None and child.reader.is_alive()


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
