"""Server processes, clusters of them, and one-shot child programs, all of the same interpreter."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpi_rank
import ports

from common.asleep import Asleep
from common.mpi_job import FOLDER, Job, as_rank
from common.protocols import MPI
from common.virtual_host import SLOWER, inside
from common.warm import WARM, Forked

_SLOWER = SLOWER if inside() else 1
STARTUP_SECONDS = 120.0 * _SLOWER  # five at once may import TensorFlow, beside other suites
_SERVER = Path(__file__).with_name("server_main.py")
_CLIENT = Path(__file__).with_name("mpi_client_main.py")
#: Programs: one starts a server and says why it does not, an eager client connects to a host.
STARTS = Path(__file__).with_name("starts_server_main.py")
CONNECTS = Path(__file__).with_name("connects_main.py")
# Where what counts the bytes of a process's TCP connections lies.
_RUNTIME = Path(__file__).parents[2] / "scripts/artf_cli/runtime"
_TAIL = 6000


def child_env(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child: ours, without a TF_CONFIG, with this package importable."""
    env = {key: value for key, value in os.environ.items() if key != "TF_CONFIG"}
    paths = [str(_SERVER.parent.parent), str(_RUNTIME), env.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    env["PYTHONUNBUFFERED"] = "1"
    # The sanitizers' libraries (tests/sanitized) must come before a test's own.
    preloaded = env.get("LD_PRELOAD", "")
    env.update(extra or {})
    if preloaded not in env.get("LD_PRELOAD", ""):
        env["LD_PRELOAD"] = f"{preloaded} {env['LD_PRELOAD']}"
    return env


class _Taken:
    """The ports that free_port() must not give.

    Those of the suites that run beside this one: with the share "2/17" this one has the ports that
    leave 2 when divided by 17. And the last 500 that it gave, which may not be bound yet; not all
    that it ever gave, since a long suite would run out of its share.
    """

    def __init__(self, share: str) -> None:
        self._mine, self._shares = (int(number) for number in share.split("/"))
        self._given: deque[int] = deque(maxlen=500)

    def add(self, port: int) -> None:
        self._given.append(port)

    def __contains__(self, port: object) -> bool:
        assert isinstance(port, int)
        return port % self._shares != self._mine or port in self._given


_taken = _Taken(os.environ.get("ARTF_TEST_PORTS", "0/1"))


def free_port() -> int:
    """A free loopback port, none of those given lately; see `ports.hold`."""
    with ports.hold(_taken) as held:
        port = int(held.getsockname()[1])
        _taken.add(port)
        return port


def own_address() -> str:
    """A free address on the loopback."""
    return f"127.0.0.1:{free_port()}"


def tf_config(spec: dict[str, list[str]], protocol: str, job: str, index: int) -> dict[str, str]:
    """The environment of a task that finds its cluster by TF_CONFIG."""
    task = {"type": job, "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": spec, "task": task, "rpc_layer": protocol})}


def stand_still(pid: int, seconds: float = 10.0) -> None:
    """SIGSTOP; returns once all threads of the process stand still.

    The kernel wakes one of them, and until that one has had a processor the others go on.
    """
    os.kill(pid, signal.SIGSTOP)
    limit = time.monotonic() + seconds
    while not all(_stopped(task) for task in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < limit, f"process {pid} goes on after SIGSTOP"
        time.sleep(0.001)


def _stopped(task: Path) -> bool:
    try:
        # The state follows the name in brackets.
        return (task / "stat").read_text().rpartition(") ")[2].startswith("T")
    except (FileNotFoundError, ProcessLookupError):
        return True  # the thread has ended, before or after its file was opened


class ServerProcess:
    """One TensorFlow server in a Python process of its own."""

    def __init__(
        self,
        spec: Mapping[str, Sequence[str]],
        job: str,
        index: int,
        protocol: str,
        log: Path,
        env: Mapping[str, str] | None = None,
        python: str = sys.executable,
        mpi_job: Path | str | None = None,
    ) -> None:
        """With `mpi_job`, or where the environment names one and it needs one, it is a rank."""
        self.name = f"{job}:{index}"
        self.log = log
        self._mark = 0
        settings = {"cluster": spec, "job": job, "index": index, "protocol": protocol}
        command = [python, str(_SERVER), json.dumps(settings)]
        self._mpi_job = mpi_job or (os.environ.get(FOLDER) if protocol == MPI else None)
        self._process: subprocess.Popen[bytes] | Forked
        with log.open("ab") as stderr:
            forked = None
            if not self._mpi_job and python == sys.executable:
                forked = WARM.start(child_env(env), settings, stderr.fileno())
            self._process = forked or subprocess.Popen(
                as_rank(self._mpi_job, command) if self._mpi_job else command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=child_env(env),
            )

    @property
    def pid(self) -> int:
        """The server's own process, also where another one stands for it."""
        if self._mpi_job:
            return mpi_rank.pid_of(Path(self._mpi_job), self._process.pid)
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self, seconds: float = STARTUP_SECONDS) -> None:
        """Returns once the child has said that it serves; raises with its stderr if it cannot."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline().decode() if readable else ""
        if not line.startswith("READY"):
            self.kill()
            raise RuntimeError(f"server {self.name} did not start; its stderr:\n{self.tail()}")

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())
        self._process.stdin.flush()

    def _ask(self, word: str, seconds: float) -> Any:
        assert self._process.stdout is not None
        self._say(word)
        readable, _, _ = select.select([self._process.stdout], [], [], seconds)
        assert readable, f"server {self.name} does not answer"
        return json.loads(self._process.stdout.readline())

    def status(self, seconds: float = 10.0) -> dict[str, Any]:
        """What `tensorflow.python.ar_grpc.status()` says in the child."""
        answer: dict[str, Any] = self._ask("status", seconds)
        return answer

    def counters(self, seconds: float = 10.0) -> dict[str, Any]:
        """What `common.counters.own_counters()` says in the child."""
        answer: dict[str, Any] = self._ask("counters", seconds)
        return answer

    def heap(self, seconds: float = 10.0) -> int | None:
        """Bytes that malloc has given out in the child; None where its glibc cannot tell."""
        answer: int | None = self._ask("heap", seconds)
        return answer

    def aborted(self, seconds: float = 10.0) -> int:
        """How many rendezvous the child keeps for good, as each was aborted once."""
        answer: int = self._ask("aborted", seconds)
        return answer

    def wait(self, seconds: float) -> int:
        """Its exit status, when it has ended by itself."""
        return self._process.wait(seconds)

    def ask_to_leave(self) -> None:
        """Asks the child to return from main()."""
        self._say("leave")

    def leave(self, seconds: float) -> int:
        """The same; its exit status."""
        self.ask_to_leave()
        return self.wait(seconds)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def stand_still(self) -> None:
        stand_still(self.pid)

    def kill(self) -> None:
        if self.alive():
            # Of a rank the one that stands for it: its seat ends it at once, wherever it is.
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def mark(self) -> None:
        """From now on tail() shows only what is written after this call."""
        self._mark = self.log.stat().st_size

    def tail(self) -> str:
        return self.log.read_bytes()[self._mark :][-_TAIL:].decode(errors="replace")


class Cluster:
    """Servers of one protocol, for example `Cluster("grpc", {"ps": 1, "worker": 2}, folder)`.

    `protocols` and `envs` say by task ("ps:0") what is different there. Servers of grpc+mpi are
    ranks of one job of the MPI that `mpi` names, which has `clients` more: an MPI starts all of its
    ranks at once, so a program that is to use the cluster later (client()) has to be there before.
    """

    def __init__(
        self,
        protocol: str,
        jobs: Mapping[str, int],
        folder: Path,
        env: Mapping[str, str] | None = None,
        protocols: Mapping[str, str] | None = None,
        envs: Mapping[str, Mapping[str, str]] | None = None,
        mpi: str = "",
        clients: int = 0,
    ) -> None:
        self.protocol = protocol
        self.env = dict(env or {})
        self.mpi = mpi
        self._folder = folder
        self._protocols = protocols or {}
        self._envs = envs or {}
        self._job: Job | None = None
        self._jobs: list[Job] = []
        self._clients: list[Program] = []
        self.spec: dict[str, list[str]] = {
            job: [own_address() for _ in range(count)] for job, count in jobs.items()
        }
        self._servers: dict[str, ServerProcess] = {}
        try:
            if mpi:
                ranks = [task for task in self._names() if self._protocol_of(task) == MPI]
                self._job = self._new_job(len(ranks) + clients)
                self._clients = [
                    Program(_CLIENT, {"address": own_address()}, self.env, self._job)
                    for _ in range(clients)
                ]
            for task in self._names():
                job, index = task.split(":")
                self._spawn(job, int(index))
            for server in self._servers.values():
                server.wait_ready()
        except BaseException:
            self.close()
            raise

    def _names(self) -> list[str]:
        return [f"{job}:{i}" for job, addresses in self.spec.items() for i in range(len(addresses))]

    def _protocol_of(self, task: str) -> str:
        return self._protocols.get(task, self.protocol)

    def _new_job(self, ranks: int) -> Job:
        self._jobs.append(Job(self.mpi, ranks))
        return self._jobs[-1]

    def _spawn(self, job: str, index: int) -> ServerProcess:
        task = f"{job}:{index}"
        log = self._folder / f"{job}{index}.stderr"
        protocol = self._protocol_of(task)
        env = {**self.env, **self._envs.get(task, {})}
        rank_of = self._job.folder if self._job and protocol == MPI else None
        self._servers[task] = ServerProcess(
            self.spec, job, index, protocol, log, env, mpi_job=rank_of
        )
        return self._servers[task]

    def client(self, script: Path, settings: Mapping[str, Any]) -> Program:
        """A program of its own that is to use the cluster, in the cluster's environment.

        Over MPI it is one of the job's ranks that were kept for it, a Python that has a server of
        its own since then; it ends without MPI_Finalize, which would wait for the servers.
        """
        if not self._job:
            return Program(script, settings, self.env)
        assert self._clients, "Cluster(clients=…) says how many programs there will be"
        program = self._clients.pop()
        program.tell({"script": str(script), "settings": json.dumps(settings)})
        return program

    def programs(self, script: Path, settings: Sequence[Mapping[str, Any]]) -> list[Program]:
        """Programs that have servers of their own, all of one MPI job where they need one."""
        job = self._new_job(len(settings)) if self._job else None
        return [Program(script, each, self.env, job) for each in settings]

    def __getitem__(self, task: str) -> ServerProcess:
        return self._servers[task]

    @property
    def tasks(self) -> list[str]:
        return list(self._servers)

    def target(self, task: str = "worker:0", scheme: str = "grpc") -> str:
        job, index = task.split(":")
        return f"{scheme}://{self.spec[job][int(index)]}"

    def restart(self, task: str) -> None:
        """Ends a server, if it still runs, and starts another one on the same port."""
        self._servers[task].kill()
        job, index = task.split(":")
        self._spawn(job, int(index)).wait_ready()

    def start_outside(self, task: str) -> None:
        """Starts a task in the place of one that has ended, not as a rank, and awaits its end:
        raises TimeoutExpired where it stays."""
        job, index = task.split(":")
        log, env = self._servers[task].log, {**self.env, **self._envs.get(task, {})}
        alone = ServerProcess(self.spec, job, int(index), self._protocol_of(task), log, env)
        self._servers[task] = alone
        alone.wait(STARTUP_SECONDS)

    def new_job(self) -> None:
        """Ends all servers over MPI, and starts them as a job of as many ranks."""
        ranks = [task for task in self._names() if self._protocol_of(task) == MPI]
        for task in ranks:
            self._servers[task].kill()
        self._job = self._new_job(len(ranks))
        for task in ranks:
            job, index = task.split(":")
            self._spawn(job, int(index))
        for task in ranks:
            self._servers[task].wait_ready()

    def jobs_status(self, seconds: float) -> list[int]:
        """The exit statuses of the launchers of its MPI jobs, once all ranks have ended."""
        return [job.wait(seconds) for job in self._jobs]

    def mark(self) -> None:
        for server in self._servers.values():
            server.mark()

    def dead(self) -> list[str]:
        return [name for name, server in self._servers.items() if not server.alive()]

    def report(self) -> str:
        """Each server's last lines of stderr, for a failed test."""
        parts = []
        for name, server in self._servers.items():
            state = "alive" if server.alive() else "dead"
            parts.append(f"--- {self.protocol} {name} ({state}) ---\n{server.tail()}")
        return "\n".join(parts)

    def close(self) -> None:
        for server in self._servers.values():
            server.kill()
        for client in self._clients:
            client.kill()
        for job in self._jobs:
            job.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class Outcome:
    """How a child program ended."""

    status: int
    stdout: str
    stderr: str
    #: Seconds from its last word on stdout to its exit in which it slept; None: it said none.
    slept: float | None

    def result(self) -> Any:
        """The object that the program printed as its last line; it must have exited cleanly."""
        assert self.status == 0, self.report()
        return json.loads(self.stdout.splitlines()[-1])

    def report(self) -> str:
        """What a failed test shows of it."""
        return f"exit status {self.status}\n{self.stdout}\n{self.stderr[-_TAIL:]}"


class Program:
    """A running child program: `script` with one JSON argument; with `job` it is a rank of it."""

    def __init__(
        self,
        script: Path,
        settings: Mapping[str, Any],
        env: Mapping[str, str] | None = None,
        job: Job | None = None,
    ) -> None:
        command = [sys.executable, str(script), json.dumps(settings)]
        self._job = job
        self._process = subprocess.Popen(
            as_rank(job.folder, command) if job else command,
            stdin=subprocess.PIPE if job else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=child_env(env),
        )

    @property
    def pid(self) -> int:
        if self._job:
            return mpi_rank.pid_of(self._job.folder, self._process.pid)
        return self._process.pid

    def tell(self, order: Mapping[str, Any]) -> None:
        """A line of JSON on its standard input, of a rank."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(order)}\n".encode())
        self._process.stdin.flush()

    def line(self, seconds: float) -> str:
        """Its next line of output, which wait() does not have then; empty where it is late."""
        assert self._process.stdout is not None
        lines: list[bytes] = []
        reader = threading.Thread(
            target=lambda: lines.append(self._process.stdout.readline()),  # type: ignore[union-attr]
            daemon=True,
        )
        reader.start()
        reader.join(seconds)
        return lines[0].decode() if lines else ""

    def wait(self, seconds: float) -> Outcome:
        """Collects its output until it exits; after `seconds` it is killed and this raises.

        A virtual host gets some times as many.
        """
        seconds *= _SLOWER
        deadline = time.monotonic() + seconds
        stdout, stderr = self._process.stdout, self._process.stderr
        assert stdout is not None and stderr is not None
        text: dict[Any, bytes] = {stdout: b"", stderr: b""}
        open_pipes = [stdout, stderr]
        asleep = Asleep(self._process.pid)  # of a rank, what stands for it
        said = False
        try:
            while open_pipes and time.monotonic() < deadline:
                readable, _, _ = select.select(open_pipes, [], [], 0.1)
                if said:
                    asleep.look()
                for pipe in readable:
                    piece = os.read(pipe.fileno(), 65536)
                    text[pipe] += piece
                    if not piece:
                        open_pipes.remove(pipe)
                    elif pipe is stdout:
                        said = True
                        asleep.restart()
            status = self._process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"no exit in {seconds:.0f} s\n{text[stdout].decode(errors='replace')[-_TAIL:]}\n"
                f"{text[stderr].decode(errors='replace')[-_TAIL:]}"
            ) from None
        finally:
            self.kill()
        slept = asleep.seconds if said else None
        return Outcome(
            status, text[stdout].decode(), text[stderr].decode("utf-8", "replace"), slept
        )

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def run_program(
    script: Path,
    settings: Mapping[str, Any],
    seconds: float = 90,
    env: Mapping[str, str] | None = None,
    job: Job | None = None,
) -> Outcome:
    return Program(script, settings, env, job).wait(seconds)


def wait_together(programs: Sequence[Program], seconds: float) -> list[Outcome]:
    """The outcomes of programs that need each other; when one fails, those of all are shown.

    The first to fail is often not the first that is waited for.
    """
    ends: list[Outcome | AssertionError] = []
    try:
        for program in programs:
            try:
                ends.append(program.wait(seconds))
            except AssertionError as late:
                ends.append(late)
    finally:
        for program in programs:
            program.kill()
    outcomes = [end for end in ends if isinstance(end, Outcome)]
    well = len(outcomes) == len(ends) and all(outcome.status == 0 for outcome in outcomes)
    assert well, "\n".join(
        f"--- program {index} ---\n{end.report() if isinstance(end, Outcome) else end}"
        for index, end in enumerate(ends)
    )
    return outcomes
