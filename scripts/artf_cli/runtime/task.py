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
from typing import Any

import tcp_info
import tensorflow as tf

_TRIES = 3


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


def _peer_paths() -> dict[str, str] | None:
    """The runtime's own account of each peer's path ({"worker:0": "shm"}); None without one."""
    try:
        from tensorflow.python import ar_grpc
    except ImportError:
        return None
    report = getattr(ar_grpc, "peer_paths", None)
    if report is None:
        return None
    paths = {}
    for peer, path in report().items():
        name = re.fullmatch(r"/job:([^/]+)(?:/replica:\d+)?/task:(\d+)(?:/.*)?", peer)
        paths[f"{name.group(1)}:{name.group(2)}" if name else peer] = str(path)
    return paths


class Task:
    """A task of a cluster on this machine's loopback; subclasses add `do_NAME` methods.

    A command {"do": "NAME", …} calls do_NAME with the other fields; what it returns is the answer.
    """

    def __init__(self) -> None:
        # TensorFlow may print: only answers go to the pipe, all else to the log.
        self._answers = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        # Held until the server takes it, so that no one else gets this port meanwhile.
        self._port = socket.socket()
        self._port.bind(("127.0.0.1", 0))
        self.server: Any = None
        self.index = 0

    def emit(self, event: str, **fields: Any) -> None:
        """Writes one line to the driver."""
        self._answers.write(json.dumps({"event": event, **fields}) + "\n")

    def do_serve(
        self, cluster: dict[str, list[str]], job: str, index: int, protocol: str
    ) -> dict[str, Any]:
        """Starts the server of this task; exits with one line when there is no such protocol."""
        self.index = index
        self._port.close()
        try:
            self.server = tf.compat.v1.train.Server(
                cluster, job_name=job, task_index=index, protocol=protocol
            )
        except tf.errors.NotFoundError as error:
            names = re.search(r"factories are: \[([^\]]*)\]", str(error))
            known = f" (it has {names.group(1).strip()})" if names else ""
            sys.exit(f"this TensorFlow has no server protocol {protocol!r}{known}")
        return {"target": self.server.target}

    def do_report(self) -> dict[str, Any]:
        """What this process's TCP sockets carried so far, and the runtime's account of paths."""
        sockets = tcp_info.tcp_sockets()
        return {
            "bytes_sent": sum(tcp.bytes_sent for tcp in sockets),
            "connections": [asdict(tcp) for tcp in sockets if tcp.established],
            "peer_paths": _peer_paths(),
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
