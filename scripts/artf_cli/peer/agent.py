"""`artf bench serve`: starts tasks of a measurement for an artf on another host.

A connection that has shown the token asks for facts, or for one task. That task lives as long as
the connection: its lines go both ways, and it is killed when the connection ends.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from artf_cli import cluster, supervise
from artf_cli.console import note
from artf_cli.errors import ArtfError
from artf_cli.peer import channel as channels
from artf_cli.peer import host
from artf_cli.peer.channel import Channel, Closed, Message
from artf_cli.variants import parse

#: Tasks that a peer may start: scripts of artf_cli/runtime.
SCRIPTS = ("recv_worker.py",)
_MOST_CONNECTIONS = 128
_KEPT_STDERR = 16384
_END_S = 10.0


class Agent:
    """Serves one token's owner on `listener`; `python` has the wheel of `facts`."""

    def __init__(
        self,
        listener: socket.socket,
        token: str,
        python: Path,
        facts: Callable[[], host.HostFacts],
        logs: Path,
    ) -> None:
        self._listener = listener
        self._token = token
        self._python = python
        self._facts = facts
        self._logs = logs
        self._started: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._room = threading.BoundedSemaphore(_MOST_CONNECTIONS)

    def run(self) -> None:
        """Serves until this thread is interrupted; all tasks die with it.

        A task dies with the thread that started it, so it is this one that starts them all.
        """
        threading.Thread(target=self._accept, daemon=True).start()
        while True:
            self._started.get()()

    def _accept(self) -> None:
        while True:
            try:
                connection, (address, *_) = self._listener.accept()
            except OSError as error:
                note(f"no connection taken: {error.strerror}")
                continue
            if not self._room.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection, address), daemon=True).start()

    def _serve(self, connection: socket.socket, address: str) -> None:
        try:
            channel = channels.welcome(connection, self._token)
            while True:
                request = channel.receive()
                if request.get("do") == "facts":
                    channel.send({"facts": self._facts()})
                elif request.get("do") == "received":
                    channel.send({"received": host.received()})
                else:
                    self._run_task(channel, request, address)
                    return
        except Closed as error:
            # One that goes after it had what it came for says nothing else.
            if str(error) != "it closed the connection":
                note(f"{address}: {error}")
        finally:
            with suppress(OSError):
                connection.close()
            self._room.release()

    def _run_task(self, channel: Channel, request: Message, address: str) -> None:
        try:
            made: Future[subprocess.Popen[str]] = Future()
            with tempfile.NamedTemporaryFile(suffix=".err", dir=self._logs, delete=False) as file:
                log = Path(file.name)
            command, env = _task(self._python, request)

            def start() -> None:
                try:
                    made.set_result(_start(command, env, log))
                except OSError as error:
                    made.set_exception(error)

            self._started.put(start)
            process = made.result()
        except (ArtfError, OSError) as error:
            channel.send({"event": "ended", "status": 1, "said": str(error)})
            return
        note(f"{address} starts {request['script']} over {request['variant']}")
        reader = threading.Thread(target=_take_commands, args=(channel, process, log), daemon=True)
        reader.start()
        assert process.stdout is not None
        try:
            for line in process.stdout:
                channel.send(json.loads(line))
            status = process.wait(_END_S)
            said = log.read_text(errors="replace")[-_KEPT_STDERR:]
            channel.send({"event": "ended", "status": status, "said": said})
        except (Closed, ValueError, subprocess.TimeoutExpired) as error:
            note(f"{address}: {request['script']} is ended: {error}")
        finally:
            _kill(process)
            channel.close()
            reader.join()


def _task(python: Path, request: Message) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a task; ArtfError for what nobody may ask for."""
    script, label = str(request.get("script")), str(request.get("variant"))
    if request.get("do") != "start" or script not in SCRIPTS:
        raise ArtfError(f"{request.get('do')} {script} is nothing to start", "use the same commit")
    variant = parse(label)
    # The address that the peer knows this host by, which only chooses where a port is held.
    env = {**cluster.environment(), **variant.environment, **cluster.TALKATIVE}
    env[cluster.HOST_VARIABLE] = str(request.get("host"))
    return [str(word) for word in cluster.task_command(python, script)], env


def _start(command: list[str], env: dict[str, str], log: Path) -> subprocess.Popen[str]:
    leash = [sys.executable, "-I", "-S", str(supervise.LEASH), str(os.getpid())]
    with log.open("wb") as err:
        return subprocess.Popen(
            [*leash, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=err,
            env=env,
            text=True,
            start_new_session=True,
        )


def _take_commands(channel: Channel, process: subprocess.Popen[str], log: Path) -> None:
    """Hands lines on to the task, and answers what it cannot tell of itself undisturbed."""
    assert process.stdin is not None
    with suppress(Closed, OSError):
        while True:
            message = channel.receive()
            if message.get("do") == "cpu":
                channel.send({"event": "cpu", "seconds": cluster.process_cpu_seconds(process.pid)})
            elif message.get("do") == "log":
                channel.send({"event": "log", "lines": cluster.fabric_lines(log)})
            else:
                process.stdin.write(json.dumps(message) + "\n")
                process.stdin.flush()
    _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        # Not waited for by anybody before: the number is still its own.
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
