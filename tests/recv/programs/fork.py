"""A server process forks by multiprocessing, and the child writes into the memory of its tensors.

All the while a worker, another process, reads a variable of this one. Prints what each of them saw.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python import ar_grpc

from common.processes import ServerProcess
from common.sessions import config, task_device

SIZE = 4 * 2**20
TASKS = {"ps": "ps:0", "worker": "worker:0"}


def ends(view: Any) -> list[int]:
    return [int(view[0]), int(view[-1])]


def child(view: Any, pipe: Connection) -> None:
    """No operation in here: TensorFlow's threads do not live on in a fork."""
    saw = ends(view)
    ctypes.memset(view.ctypes.data, 99, view.nbytes)  # numpy itself refuses: tensors do not change
    pipe.send({"saw": saw, "wrote": ends(view), "arena": "arena" in ar_grpc.status()})


def fork(view: Any) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(view, sender))
    process.start()
    sender.close()
    said: dict[str, Any] = receiver.recv() if receiver.poll(30) else {}
    process.join(30)
    return {**said, "status": process.exitcode}


class Reader(threading.Thread):
    """Steps in which the worker reads the variable, which is 7 everywhere."""

    def __init__(self, target: str) -> None:
        super().__init__()
        self._target = target
        self._ended = threading.Event()
        self.first = threading.Event()
        self.steps = 0
        self.wrong: list[str] = []
        self.start()

    def run(self) -> None:
        try:
            with tf.Graph().as_default():
                with tf.device(task_device(TASKS["ps"])):
                    variable = tf.compat.v1.get_variable(
                        "v", initializer=lambda: tf.fill([SIZE], tf.constant(7, tf.uint8))
                    )
                with tf.device(task_device(TASKS["worker"])):
                    got = tf.identity(variable.read_value())
                    seen = tf.stack([tf.reduce_min(got), tf.reduce_max(got)])
                with tf.compat.v1.Session(self._target, config=config()) as session:
                    session.run(variable.initializer)
                    while not self._ended.is_set():
                        values = session.run(seen).tolist()
                        if values != [7, 7]:
                            self.wrong.append(str(values))
                        self.steps += 1
                        self.first.set()
        except Exception as error:
            self.wrong.append(repr(error))
            self.first.set()

    def stop(self) -> None:
        self._ended.set()
        self.join(30)


def main() -> None:
    settings = json.loads(sys.argv[1])
    spec = settings["cluster"]
    log = Path(settings["log"])
    worker = ServerProcess(spec, "worker", 0, settings["protocol"], log, settings["env"])
    server = tf.distribute.Server(
        tf.train.ClusterSpec(spec), job_name="ps", task_index=0, protocol=settings["protocol"]
    )
    try:
        worker.wait_ready()
        before = ar_grpc.status()["arena"]["in_use"]
        tensor = tf.fill([SIZE], tf.constant(7, tf.uint8))
        in_arena = ar_grpc.status()["arena"]["in_use"] - before
        # The tensor's own memory, not a copy.
        view = tensor._numpy()
        reader = Reader(f"grpc://{spec['worker'][0]}")
        reader.first.wait(60)
        children = [fork(view) for _ in range(settings["forks"])]
        steps = reader.steps
        reader.first.clear()
        reader.first.wait(60)
        reader.stop()
        result = {
            "in_arena": in_arena,
            "children": children,
            "after": ends(tensor.numpy()),
            "doubled": ends((tensor * 2).numpy()),
            "wrong": reader.wrong,
            "steps": [steps, reader.steps],
            "received": worker.status()["rendezvous_bytes"],
        }
    finally:
        worker.kill()
    print(json.dumps(result), flush=True)
    del server


if __name__ == "__main__":
    main()
