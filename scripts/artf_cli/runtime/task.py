"""One TensorFlow task: takes commands as lines of JSON, answers each with one line of JSON.

Runs in the user's environment with nothing but TensorFlow; `artf_cli.cluster` is the other end.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, cast

import ports
import tcp_info
import tensorflow as tf

_TRIES = 3
#: The channels beside gRPC's own of grpc+mpi and grpc+verbs, as ar_grpc.status() counts them.
_CLASSIC = ("mpi", "verbs")


def session_config(worker: int) -> Any:
    """A ConfigProto for the session of one worker: it knows the servers and itself, no one else.

    Graph rewriting is off, so that what is measured is what was written.
    """
    config = tf.compat.v1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{worker}"])
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = (
        tf.compat.v1.OptimizerOptions.L0  # no constant folding either
    )
    return config


def _server_config(channels: int, spin: bool) -> Any:
    """A ConfigProto for a server; None where it is to have TensorFlow's own settings."""
    if not channels and spin:
        return None
    config = tf.compat.v1.ConfigProto()
    config.rpc_options.num_channels_per_target = channels
    config.experimental.disable_thread_spinning = not spin
    return config


def run_step(step: Callable[[], Any]) -> Any:
    """Runs one session step, again when TensorFlow mistakes it for one that it has seen.

    Upstream draws the ids of RunGraph requests from a generator seeded with 32 bits, so once in
    tens of thousands of steps two ids collide and a healthy step is aborted.
    """
    for left in reversed(range(_TRIES)):
        try:
            return step()
        except tf.errors.AbortedError as error:
            if not left or "request was received twice" not in str(error):
                raise
    raise AssertionError("unreachable")


def _ar_status() -> dict[str, Any] | None:
    """What AR-gRPC says of this process; None without it."""
    try:
        from tensorflow.python import ar_grpc
    except ImportError:
        return None
    return cast("dict[str, Any]", ar_grpc.status())


def _resolved(address: str) -> set[str]:
    """`HOST:PORT` as connections have it: by number."""
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host, int(port), socket.AF_INET, socket.SOCK_STREAM)
    except OSError:  # its container has ended
        return {address}
    return {f"{one[4][0]}:{port}" for one in found}


class Task:
    """A task of a cluster, on this machine's loopback unless `ARTF_TASK_HOST` says else; subclasses
    add `do_NAME` methods.

    A command {"do": "NAME", …} calls do_NAME with the other fields; what it returns is the answer.
    """

    def __init__(self) -> None:
        # TensorFlow may print: only answers go to the pipe, all else to the log.
        self._answers = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        # Held until the server is about to take it.
        self._port = ports.hold(host=os.environ.get("ARTF_TASK_HOST", ports.LOOPBACK))
        self.server: Any = None
        self._names: dict[str, str] = {}
        self.index = 0

    def emit(self, event: str, **fields: Any) -> None:
        """Writes one line to the driver."""
        self._answers.write(json.dumps({"event": event, **fields}) + "\n")

    def do_serve(
        self,
        cluster: dict[str, list[str]],
        job: str,
        index: int,
        protocol: str,
        channels: int = 0,
        spin: bool = True,
    ) -> dict[str, Any]:
        """Starts the server of this task; exits with one line when there is no such protocol.

        It has `channels` channels to each other task (0: as TensorFlow does); without `spin`
        the threads of its pools sleep as soon as they have nothing to do.
        """
        self.take_place(cluster, index)
        try:
            self.server = tf.compat.v1.train.Server(
                cluster,
                job_name=job,
                task_index=index,
                protocol=protocol,
                config=_server_config(channels, spin),
            )
        except tf.errors.NotFoundError as error:
            names = re.search(r"factories are: \[([^\]]*)\]", str(error))
            known = f" (it has {names.group(1).strip()})" if names else ""
            sys.exit(f"this TensorFlow has no server protocol {protocol!r}{known}")
        return {"target": self.server.target}

    def take_place(self, cluster: dict[str, list[str]], index: int) -> None:
        """Learns the cluster's tasks and frees this one's port, for its server to take."""
        self.index = index
        self._names = {
            address: f"{name}:{task}"
            for name, addresses in cluster.items()
            for task, address in enumerate(addresses)
        }
        self._port.close()

    def do_report(self) -> dict[str, Any]:
        """What this process carried so far over TCP, AR-gRPC's fabrics and classic channels."""
        sockets = tcp_info.tcp_sockets()
        status = _ar_status() or {"paths": {}}
        # A rendezvous is counted by the one who reads; over all tasks each byte counts once.
        read = status.get("rendezvous_bytes", 0)
        paths = {path.partition(":")[2]: fabric for path, fabric in status["paths"].items()}
        names = {
            resolved: name
            for address, name in self._names.items()
            for resolved in _resolved(address)
        }
        return {
            "bytes_sent": sum(tcp.bytes_sent for tcp in sockets)
            + status.get("stream_bytes_sent", 0)
            + read
            + sum(status.get(f"{channel}_bytes_sent", 0) for channel in _CLASSIC),
            "connections": [asdict(tcp) for tcp in sockets if tcp.established],
            "fabrics": {
                name: paths[address] for address, name in names.items() if address in paths
            },
            "fabric_bytes_received": status.get("stream_bytes_received", 0) + read,
            "classic_bytes_received": {
                channel: status.get(f"{channel}_bytes_received", 0) for channel in _CLASSIC
            },
            # Pages of the arena that the next step need not fault in.
            "warm_free_bytes": status.get("arena", {}).get("warm_free", 0),
        }

    def serve_commands(self) -> None:
        """Answers commands until `exit` or the end of the input; never returns."""
        port = self._port.getsockname()[1]
        self.emit("hello", port=port, tensorflow=tf.__version__)
        for line in sys.stdin:
            command = json.loads(line)
            name = command.pop("do")
            if name == "exit":
                break
            answer = getattr(self, f"do_{name}")(**command)
            self.emit("done", do=name, **(answer or {}))
        sys.stderr.flush()
        # A TensorFlow server cannot be shut down: leave without running its destructors.
        os._exit(0)
