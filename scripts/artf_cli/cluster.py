"""A TensorFlow cluster: a parameter server and some workers, mostly.

The tasks are processes of the user's Python (`runtime/task.py`) that take commands over pipes. They
all run on this machine's loopback, or the workers here and the others on a peer (`artf_cli.peer`).
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from artf_cli import mpis, variants
from artf_cli.errors import ArtfError
from artf_cli.peer.channel import TOKEN_VARIABLE
from artf_cli.peer.client import Peer
from artf_cli.supervise import Child, Group

_RUNTIME = Path(__file__).with_name("runtime")
_START_S = 300.0
_ANSWER_S = 300.0
_EXIT_S = 30.0
PS = "ps:0"
CHIEF = "chief:0"
#: How steps are run: by the workers' own sessions, or by the coordinator of a
#: ParameterServerStrategy, a process of its own.
SESSION = "session"
STRATEGY = "strategy"
APIS = (SESSION, STRATEGY)
#: The tasks beside the workers.
BESIDE = {SESSION: (PS,), STRATEGY: (PS, CHIEF)}
#: What a process that has imported TensorFlow takes, without its tensors.
PROCESS_BYTES = 350 << 20

#: Names the address at which a task holds its port; without it, the loopback.
HOST_VARIABLE = "ARTF_TASK_HOST"
#: Lets a task's log say which device and which paths it uses.
TALKATIVE = {"TF_CPP_MIN_LOG_LEVEL": "0"}
_LOOPBACK = "127.0.0.1"
_FABRIC_LINE = re.compile(r"AR-gRPC: (.*)")

Answer = dict[str, Any]


def task_command(python: Path, script: str) -> list[str | Path]:
    """What runs a task; -E -s: nothing of our own Python's settings or of the user's site."""
    return [python, "-E", "-s", "-u", _RUNTIME / script]


def fabric_lines(log: Path) -> list[str]:
    """What AR-gRPC said in a task's log, each line once: its device, and each connection's path."""
    text = log.read_text(errors="replace")
    return list(dict.fromkeys(found[1] for found in _FABRIC_LINE.finditer(text)))


def environment(base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a task: `base` without what would change or slow the measurement."""
    kept = {
        name: value
        for name, value in base.items()
        # gRPC would send even loopback connections to a proxy.
        if name.lower() not in ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")
        and name not in ("TF_CONFIG", "PYTHONPATH", "PYTHONHOME", TOKEN_VARIABLE)
    }
    # Tasks that share a GPU would each take all of its memory, and these models need none.
    kept["CUDA_VISIBLE_DEVICES"] = "-1"
    kept.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    return kept


def classic_channel(
    before: Mapping[str, Answer], after: Mapping[str, Answer], tasks: Sequence[str], payload: int
) -> str:
    """The classic channel ("mpi", "verbs") by which these tasks received `payload` bytes together,
    by their answers to `report`; empty: none, as where there is no payload."""
    for channel in ("mpi", "verbs"):
        now, then = (
            sum(
                said.get(task, {}).get("classic_bytes_received", {}).get(channel, 0)
                for task in tasks
            )
            for said in (after, before)
        )
        if now - then >= payload > 0:
            return channel
    return ""


def observed_paths(
    before: Mapping[str, Answer], after: Mapping[str, Answer], payload: Mapping[str, int]
) -> dict[str, str]:
    """Which path the parameter server's tensors took to each worker ("worker:0": "tcp").

    `before` and `after` are the answers to `report` of all tasks, by task name; `payload` says for
    each worker how many bytes of tensors travelled between the two. A fabric counts when the worker
    is connected over it and received that many bytes; a classic channel ("mpi", "verbs") when it
    received that many bytes by it; "tcp", when both ends hold the same established connections and
    the server sent that many bytes over them. Else it is "unknown".
    """
    paths = {}
    for worker, expected in payload.items():
        fabric = after[worker]["fabrics"].get(PS, "tcp")
        received = _grown(before, after, worker, "fabric_bytes_received")
        ends = {(c["remote"], c["local"]) for c in after[worker]["connections"]}
        earlier = {c["inode"]: c["bytes_sent"] for c in before[PS]["connections"]}
        sent = [
            c["bytes_sent"] - earlier.get(c["inode"], 0)
            for c in after[PS]["connections"]
            if (c["local"], c["remote"]) in ends
        ]
        carried = sum(sent) >= expected if fabric == "tcp" else received >= expected
        if classic := classic_channel(before, after, [worker], expected):
            fabric, carried = classic, True
        paths[worker] = fabric if carried and ends else "unknown"
    return paths


def _grown(
    before: Mapping[str, Answer], after: Mapping[str, Answer], task: str, counter: str
) -> int:
    earlier = before.get(task, {}).get(counter, 0)
    return int(after[task].get(counter, 0) - earlier)


class _MpiJob:
    """The ranks of an MPI job on this machine, which run what they are told to (mpi_rank.py)."""

    def __init__(self, group: Group, name: str, mpi: str, ranks: int) -> None:
        # A socket's path must be short, which that of the logs need not be.
        self._folder = tempfile.TemporaryDirectory(prefix="artf-mpi-")
        one = mpis.ensure(mpi)
        rank: tuple[str | Path, ...] = (sys.executable, "-I", "-S", _RUNTIME / "mpi_rank.py")
        seat = (*rank, "seat", self._folder.name)
        launcher, *words = mpis.command(one, ranks, *seat, survive=True)
        found = shutil.which(launcher)
        if found is None:
            raise ArtfError(f"there is no {launcher}", f"put it on PATH, or leave {name} out")
        # What lets a job survive a rank also takes the quickest way between ranks from it.
        env = {**environment(mpis.environment()), **mpis.settings(one)}
        group.start(f"{name}-mpirun", [found, *words], env=env)
        self._run = [*rank, "run", self._folder.name]

    def command(self, words: Sequence[str | Path]) -> list[str | Path]:
        """What runs `words` as a rank."""
        return [*self._run, *words]

    def pid(self, child: Child) -> int:
        """The process that runs as a rank for a child of this command, once that has spoken."""
        return int((Path(self._folder.name) / f"pid-{child.pid}").read_text())


class Cluster:
    """The tasks `ps:0`, `worker:0`, … of one protocol, all inside one Group."""

    def __init__(
        self,
        group: Group,
        python: Path,
        script: str,
        variant: str,
        workers: int,
        beside: Sequence[str] = (PS,),
        peer: Peer | None = None,
    ) -> None:
        """Starts the processes, which takes them seconds: call `serve` once all are started.

        `variant` is a protocol and how it is run, as `variants.parse` takes it: `grpc+ar/tcp`;
        `beside` are the tasks other than the workers, and run on `peer` where there is one.
        """
        self.variant = variants.parse(variant)
        self.workers = [f"worker:{i}" for i in range(workers)]
        #: Where each task serves, once it does.
        self.addresses: dict[str, str] = {}
        self._group = group
        self._hosts = dict.fromkeys(beside, peer.host if peer else _LOOPBACK)
        self._hosts.update(dict.fromkeys(self.workers, peer.own_host if peer else _LOOPBACK))
        self._away = frozenset(beside if peer else ())
        self._children: dict[str, Child] = {}
        self._job: _MpiJob | None = None
        if self.variant.mpi:
            if peer is not None:
                raise ArtfError(
                    f"{variant} is measured on one host", "leave it out, or leave out --peer"
                )
            self._job = _MpiJob(group, self.variant.slug, self.variant.mpi, len(self._hosts))
        for task, host in self._hosts.items():
            name = f"{self.variant.slug}-{task}".replace(":", "")
            if peer is not None and task in self._away:
                self._children[task] = peer.start(group, name, script, variant)
                continue
            env = {**environment(), **self.variant.environment}
            if peer is not None:
                env.update({**TALKATIVE, HOST_VARIABLE: host})
            command = task_command(python, script)
            if self._job:
                command = self._job.command(command)
            self._children[task] = group.start(name, command, env=env, talk=True)

    @property
    def tasks(self) -> list[str]:
        """The names of all tasks, the parameter server first."""
        return list(self._children)

    @property
    def drivers(self) -> list[str]:
        """The tasks that are told what to run: the coordinator where there is one, else workers."""
        return [CHIEF] if CHIEF in self._children else self.workers

    def serve(self) -> str:
        """Lets every task start its server; returns TensorFlow's version."""
        hellos = self._collect(self.tasks, "hello", _START_S)
        cluster: dict[str, list[str]] = {}
        for task in self.tasks:
            job = task.split(":")[0]
            self.addresses[task] = f"{self._hosts[task]}:{hellos[task]['port']}"
            cluster.setdefault(job, []).append(self.addresses[task])
        # A coordinator connects to servers that are there. The ranks of an MPI start together.
        servers = [task for task in self.tasks if task != CHIEF or self._job]
        for some in (servers, [task for task in self.tasks if task not in servers]):
            for task in some:
                job, index = task.split(":")
                fields = {"cluster": cluster, "job": job, "index": int(index)}
                fields |= {"protocol": self.variant.protocol, **self.variant.settings}
                self._send(task, "serve", fields)
            self._collect(some, "done", _ANSWER_S)
        return str(hellos[self.tasks[0]]["tensorflow"])

    def ask(
        self,
        tasks: Sequence[str],
        command: str,
        on_progress: Callable[[str, Answer], None] | None = None,
        **fields: Any,
    ) -> dict[str, Answer]:
        """Sends one command to all of `tasks` and returns their answers, by task name.

        Raises ArtfError when any task fails, or says nothing for five minutes.
        """
        for task in tasks:
            self._send(task, command, fields)
        return self._collect(tasks, "done", _ANSWER_S, on_progress)

    def report(self) -> dict[str, Answer]:
        """What every task's sockets carried so far, by task name."""
        return self.ask(self.tasks, "report")

    def cpu_seconds(self) -> float:
        """The CPU time of all tasks so far, in seconds, by clocks of nanoseconds."""
        return sum(self.cpu_seconds_of(task) for task in self.tasks)

    def cpu_seconds_of(self, task: str) -> float:
        """The CPU time of one task so far, in seconds, read without disturbing it."""
        if task in self._away:
            self._send(task, "cpu", {})
            return float(self._collect([task], "cpu", _ANSWER_S)[task]["seconds"])
        return process_cpu_seconds(self.pid(task))

    def said(self, task: str) -> list[str]:
        """`fabric_lines` of a task's log so far."""
        if task in self._away:
            self._send(task, "log", {})
            lines: list[str] = self._collect([task], "log", _ANSWER_S)[task]["lines"]
            return lines
        return fabric_lines(self._children[task].stderr)

    def pid(self, task: str) -> int:
        """The process of a task on this machine."""
        child = self._children[task]
        return self._job.pid(child) if self._job else child.pid

    def pin(self) -> None:
        """Pins every task of this machine to cores of its own, as many to each.

        Call it once they serve: a task that starts pinned sizes its thread pools by its few cores.
        Threads that they start later inherit it. ArtfError where there are fewer cores than tasks.
        """
        cores = sorted(os.sched_getaffinity(0))
        tasks = [task for task in self.tasks if task not in self._away]
        share = len(cores) // len(tasks)
        if not share:
            raise ArtfError(
                f"{len(tasks)} tasks cannot have a core each of {len(cores)}", "leave out --pin"
            )
        for number, task in enumerate(tasks):
            own = cores[number * share : (number + 1) * share]
            for thread in psutil.Process(self.pid(task)).threads():
                # It may have ended meanwhile.
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(thread.id, own)

    def leave(self) -> None:
        """Lets every task end."""
        for task in self.tasks:
            self._send(task, "exit", {})

    def _send(self, task: str, command: str, fields: Mapping[str, Any]) -> None:
        self._children[task].send(json.dumps({"do": command, **fields}))

    def _collect(
        self,
        tasks: Sequence[str],
        event: str,
        timeout_s: float,
        on_progress: Callable[[str, Answer], None] | None = None,
    ) -> dict[str, Answer]:
        names = {self._children[task].pid: task for task in tasks}
        answers: dict[str, Answer] = {}
        while len(answers) < len(tasks):
            waiting = [self._children[task] for task in tasks if task not in answers]
            child, line = self._group.read(waiting, timeout_s)
            answer: Answer = json.loads(line)
            if answer["event"] == event:
                answers[names[child.pid]] = answer
            elif on_progress is not None:
                on_progress(names[child.pid], answer)
        return answers


def process_cpu_seconds(pid: int) -> float:
    """The CPU time of a process of this machine so far."""
    # psutil's times go in ticks of 10 ms; this is CLOCK_PROCESS_CPUTIME_ID of another process.
    clock = ctypes.c_int()
    status = ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock))
    if status != 0:
        raise OSError(status, os.strerror(status))
    return time.clock_gettime_ns(clock.value) / 1e9


def leave_all(group: Group, clusters: Sequence[Cluster]) -> None:
    """Ends the clusters in an orderly way; raises ArtfError when a task did not end well."""
    for cluster in clusters:
        cluster.leave()
    group.wait(_EXIT_S)
