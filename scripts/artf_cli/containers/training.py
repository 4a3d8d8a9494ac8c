"""Trains by docker/compose.yaml, and reads from the containers' answers what they did.

The containers need no driver: `runtime/replica.py` says what it does in lines of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from artf_cli.bench.train import LEAST_ACCURACY
from artf_cli.cluster import PS, observed_paths
from artf_cli.console import note
from artf_cli.containers.engine import Engine, explain
from artf_cli.containers.images import DOCKERFILES
from artf_cli.errors import ArtfError
from artf_cli.progress import Meter
from artf_cli.quickstart import PROTOCOLS, Run
from artf_cli.supervise import last_lines, log_folder

# Profiles of docker/compose.yaml: what the containers share.
LAYOUTS = ("volume", "namespace", "apart")
WORKERS = ("worker:0", "worker:1")
TASKS = (PS, *WORKERS)
STEPS = 600
_POLL_S = 1.0
_SILENCE_S = 300.0
_FILE = DOCKERFILES / "compose.yaml"

Answer = dict[str, Any]


class Training:
    """One run of the compose file: up at the start of the `with` block, down at its end."""

    def __init__(
        self, engine: Engine, image: str, layout: str, protocol: str, steps: int = STEPS
    ) -> None:
        self._engine = engine
        self._layout = layout
        # One of each layout and user; a rest of a killed run is taken down by the next one.
        self.project = f"ar-quickstart-{layout}-{os.getuid()}"
        self._environment = engine.environment(
            {
                "AR_IMAGE": image,
                "PROTOCOL": protocol,
                "STEPS": str(steps),
                "COMPOSE_PROFILES": layout,
                "COMPOSE_PROJECT_NAME": self.project,
            }
        )

    def __enter__(self) -> Training:
        try:
            self._compose("down", "--volumes")
            # By name, too: not every compose reads profiles from its environment.
            self._compose("up", "--detach", *self._services().values())
        except BaseException:
            # What failed first is the cause.
            with suppress(ArtfError):
                self._down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._down()

    def _down(self) -> None:
        # An impatient second Ctrl-C must not leave half of them running.
        impatient = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._compose("down", "--volumes", "--timeout", "3")
        finally:
            signal.signal(signal.SIGINT, impatient)

    def _compose(self, *words: str) -> None:
        command = [*self._engine.need_compose(), "--file", str(_FILE), *words]
        done = subprocess.run(
            command,
            env=self._environment,
            cwd=DOCKERFILES,
            capture_output=True,
            text=True,
            start_new_session=True,
        )
        if done.returncode != 0:
            raise explain(
                done.stderr + done.stdout, self._engine.kind, f"compose {words[0]} failed"
            )

    def _services(self) -> dict[str, str]:
        names = {PS: "ps"} | {task: task.replace(":", "-") for task in WORKERS}
        return {task: f"{self._layout}-{name}" for task, name in names.items()}

    def containers(self) -> dict[str, str]:
        """Task → container id."""
        found = {}
        for task, service in self._services().items():
            words = ["ps", "--all", "--quiet", "--no-trunc"]
            words += ["--filter", f"label=com.docker.compose.project={self.project}"]
            words += ["--filter", f"label=com.docker.compose.service={service}"]
            ids = self._engine.ask(*words).split()
            if len(ids) != 1:
                raise ArtfError(
                    f"{service} has {len(ids)} containers, not one", "see what removed or made them"
                )
            found[task] = ids[0]
        return found

    def answers(self, container: str) -> list[Answer]:
        """What a task has said so far, over all its starts."""
        lines = self._logs(container).stdout.splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def log(self, container: str) -> str:
        """A task's log: TensorFlow's lines, and the path of each peer."""
        return self._logs(container).stderr

    def _logs(self, container: str) -> subprocess.CompletedProcess[str]:
        command = [str(self._engine.path), "logs", container]
        return subprocess.run(command, capture_output=True, text=True, errors="replace")

    def state(self, container: str) -> Answer:
        """The engine's account of a container: Status, ExitCode, Pid, …; RestartCount beside."""
        found = self._engine.inspect(container)
        if found is None:
            raise ArtfError(f"the container {container[:12]} is gone", "run it again")
        state: Answer = found["State"]
        return {**state, "RestartCount": found.get("RestartCount", 0)}

    def wait(self, meter: Meter, logs: Path) -> dict[str, Answer]:
        """Waits until all tasks have said their result and ended; returns the results by task.

        Raises ArtfError when a container ends without one, or nothing is said for five minutes.
        """
        names = self.containers()
        said: dict[str, int] = {}
        limit = time.monotonic() + _SILENCE_S
        while True:
            # Before the answers: what a task said before it ended is read then.
            states = {task: self.state(name) for task, name in names.items()}
            answers = {task: self.answers(name) for task, name in names.items()}
            results = _last(answers, "result")
            ended = {task for task, state in states.items() if state["Status"] == "exited"}
            if results.keys() == ended == names.keys():
                self._keep_logs(names, logs)
                return results
            for task in ended - results.keys():
                kept = self._keep_logs(names, logs)[task]
                raise ArtfError(
                    f"the container of {task} ended with status {states[task]['ExitCode']}: "
                    f"{last_lines(kept.read_text())}",
                    f"read its log {kept}, and the others' beside it",
                )
            progress = _last(answers, "progress")
            if progress:
                newest = max(progress.values(), key=lambda answer: int(answer["step"]))
                meter.show(newest["step"], f"loss {newest['loss']:.4f}")
            else:
                meter.show(0, "starting")
            counts = {task: len(lines) for task, lines in answers.items()}
            if counts != said:
                said, limit = counts, time.monotonic() + _SILENCE_S
            if time.monotonic() > limit:
                self._keep_logs(names, logs)
                raise ArtfError(
                    f"the containers said nothing for {_SILENCE_S:.0f} s",
                    f"read their logs in {logs}",
                )
            time.sleep(_POLL_S)

    def _keep_logs(self, names: Mapping[str, str], logs: Path) -> dict[str, Path]:
        """Writes what the containers, which are removed at the end, said; returns the logs."""
        kept = {task: logs / f"{task.replace(':', '-')}.err" for task in names}
        for task, name in names.items():
            said = self._logs(name)
            kept[task].write_text(said.stderr)
            kept[task].with_suffix(".out").write_text(said.stdout)
        return kept


def _last(answers: Mapping[str, Sequence[Answer]], event: str) -> dict[str, Answer]:
    found = {}
    for task, lines in answers.items():
        for line in lines:
            if line["event"] == event:
                found[task] = line
    return found


def run_of(protocol: str, results: Mapping[str, Answer]) -> Run:
    """The quickstart's row for the results of all tasks."""
    workers = [task for task in results if task != PS]
    reports = {task: results[task]["report"] for task in results}
    begin = min(results[task]["begin"] for task in workers)
    end = max(results[task]["end"] for task in workers)
    steps = sum(results[task]["steps"] for task in workers)
    return Run(
        protocol=protocol,
        steps_per_second=round(steps / (end - begin), 1),
        accuracy=round(results["worker:0"]["accuracy"], 4),
        bytes_sent=sum(report["bytes_sent"] for report in reports.values()),
        # All counts begin with the containers.
        paths=observed_paths(
            {PS: {"connections": []}},
            reports,
            {task: results[task]["pulled_bytes"] for task in workers},
        ),
    )


@contextmanager
def _alone() -> Iterator[None]:
    """Waits until no other training of this user runs, and holds others off meanwhile.

    The lock lies beside no cache: the compose project is a user's, whatever the cache.
    """
    path = Path(tempfile.gettempdir()) / f"artf-containers-{os.getuid()}.lock"
    lock = FileLock(path, mode=0o600)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            note("another training of this user runs in containers: waiting for its end")
            lock.acquire()
    except OSError as error:
        raise ArtfError(f"cannot lock {path}: {error.strerror}", "set TMPDIR elsewhere") from None
    try:
        yield
    finally:
        lock.release()


def train(engine: Engine, image: str, layout: str, protocol: str, steps: int = STEPS) -> Run:
    """Trains once in three containers; raises ArtfError when one fails or learns too little."""
    with log_folder("containers") as logs:
        with (
            # A second run of this user would take the first one's containers for a rest.
            _alone(),
            Meter(f"LeNet over {protocol} in containers", len(WORKERS) * steps) as meter,
            Training(engine, image, layout, protocol, steps) as training,
        ):
            results = training.wait(meter, logs)
        run = run_of(protocol, results)
        if run["accuracy"] < LEAST_ACCURACY:
            raise ArtfError(
                f"LeNet over {protocol} reads {run['accuracy']:.1%} of the held-out digits right, "
                f"less than {LEAST_ACCURACY:.0%}",
                f"run again; if it stays so, tensors arrive wrong: read the logs in {logs}",
            )
    note(f"LeNet over {protocol}: {run['steps_per_second']} steps/s, {run['accuracy']:.1%} right")
    return run


def run(engine: Engine, image: str, layout: str) -> list[Run]:
    """Trains once over each protocol, as `artf_cli.quickstart.run`."""
    return [train(engine, image, layout, protocol) for protocol in PROTOCOLS]
