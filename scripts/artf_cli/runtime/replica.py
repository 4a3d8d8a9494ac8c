"""One container of the LeNet training: no driver, what it should do is in its environment.

`TASK`, `CLUSTER` and `PROTOCOL` are told in settings.py; `STEPS` (batches per worker) has a
default. Answers are lines of JSON on standard output, the log is on standard error. A worker that
died and comes again takes part again: the variables and the count of steps lie on the parameter
server.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import Any

import settings
import tensorflow as tf
from task import run_step
from train_lenet import LeNetTask

PS_DEVICE = "/job:ps/task:0"
_WARM_STEPS = 5
_REPORT_EVERY_S = 0.5
_POLL_S = 0.2
_CONNECT_S = 30.0
_LEAVE_MS = 30_000
_MOST_STARTS = 1000


class _Meeting:
    """Where the tasks wait for each other: queues that lie on the parameter server."""

    def __init__(self, workers: int) -> None:
        with tf.compat.v1.device(PS_DEVICE):
            names = ("ready", "finished", "released", "left")
            queues = {
                name: tf.queue.FIFOQueue(_MOST_STARTS, tf.string, [[]], shared_name=name)
                for name in names
            }
        self.name = tf.compat.v1.placeholder(tf.string, [])
        self.put = {name: queue.enqueue(self.name) for name, queue in queues.items()}
        self.take = {name: queue.dequeue() for name, queue in queues.items()}
        self.ready = queues["ready"].size()
        self.release = queues["released"].enqueue_many([["go"] * workers])


class Replica(LeNetTask):
    """A parameter server or a worker that goes through the whole training by itself."""

    def __init__(self, cluster: dict[str, list[str]], protocol: str) -> None:
        super().__init__()
        self._cluster = cluster
        self._protocol = protocol
        self._workers = len(cluster["worker"])

    def run(self, job: str, index: int, steps: int) -> None:
        """Serves, trains if this is a worker, reports, and returns when all workers are done."""
        self.do_serve(self._cluster, job, index, self._protocol)
        self.emit("serving", task=f"{job}:{index}", protocol=self._protocol)
        if job == "ps":
            self._serve()
        else:
            self._work(f"{job}:{index}", steps)

    def _serve(self) -> None:
        config = tf.compat.v1.ConfigProto(device_filters=["/job:ps"])
        with tf.Graph().as_default() as graph:
            meeting = _Meeting(self._workers)
        session = tf.compat.v1.Session(self.server.target, graph=graph, config=config)
        names: set[bytes] = set()
        # By name: one that died after it had finished says so twice.
        while len(names) < self._workers:
            names.add(session.run(meeting.take["finished"]))
        # While all connections are still open.
        self.emit("result", task="ps:0", report=self.do_report())
        session.run(meeting.release)
        limit = tf.compat.v1.RunOptions(timeout_in_ms=_LEAVE_MS)
        for _ in names:
            try:
                session.run(meeting.take["left"], options=limit)
            except tf.errors.DeadlineExceededError:
                self.emit("late", task="ps:0")
                return

    def _minimise(self, optimizer: Any) -> Any:
        self._step = tf.compat.v1.train.get_or_create_global_step()
        update = optimizer.minimize(self._loss, global_step=self._step)
        with tf.compat.v1.device(PS_DEVICE):
            self._uninitialised = tf.compat.v1.report_uninitialized_variables()
        self._meeting = _Meeting(self._workers)
        return update

    def _put(self, queue: str, name: str) -> None:
        self._session.run(self._meeting.put[queue], {self._meeting.name: name})

    def _wait_for_start(self, name: str) -> tuple[int, list[str]]:
        """(the step to go on from, 0 but for one that came again; errors of steps tried again)."""
        missing = self._session.run(self._uninitialised)
        if self.index == 0 and len(missing):
            self.do_initialise()
        while len(self._session.run(self._uninitialised)):
            time.sleep(_POLL_S)
        step = int(self._session.run(self._step))
        # The first steps connect and allocate: start-up, not training speed.
        errors: list[str] = []
        for _ in range(_WARM_STEPS):
            errors += self._warm_step()
        self._put("ready", name)
        while self._session.run(self._meeting.ready) < self._workers:
            time.sleep(_POLL_S)
        return step, errors

    def _warm_step(self) -> list[str]:
        """Runs a step; returns the errors after which it was tried again."""
        limit = time.monotonic() + _CONNECT_S
        errors: list[str] = []
        own = f"remote target /job:worker/replica:0/task:{self.index}"
        while True:
            try:
                run_step(lambda: self._session.run(self._update, self._batch()))
                return errors
            except tf.errors.UnavailableError as error:
                # The parameter server has yet to connect anew to a worker that came again.
                if time.monotonic() > limit or own not in error.message:
                    raise
                errors.append(error.message)
                time.sleep(_POLL_S)

    def _work(self, name: str, steps: int) -> None:
        built = self.do_build(self._workers)
        first, errors = self._wait_for_start(name)
        self.emit("training", task=name, step=first, tried_again=errors)
        total = (steps + _WARM_STEPS) * self._workers
        own = 0
        step = first
        begin = reported = time.monotonic()
        fetches = [self._loss, self._step, self._update]
        while step < total:
            loss, step, _ = run_step(lambda: self._session.run(fetches, self._batch()))
            step, own = int(step), own + 1
            now = time.monotonic()
            if now - reported >= _REPORT_EVERY_S:
                reported = now
                self.emit("progress", task=name, step=step, loss=float(loss))
        end = time.monotonic()
        accuracy = self.do_evaluate()["accuracy"] if self.index == 0 else None
        self._put("finished", name)
        self._session.run(self._meeting.take["released"])
        self.emit(
            "result",
            task=name,
            begin=begin,
            end=end,
            steps=own,
            accuracy=accuracy,
            # Every step pulls every parameter once.
            pulled_bytes=(own + _WARM_STEPS) * built["parameter_bytes"],
            report=self.do_report(),
        )
        # The parameter server ends when it has read the last one: its answer may not arrive.
        with suppress(tf.errors.OpError):
            self._put("left", name)


def main() -> None:
    """The entry; leaves without TensorFlow's destructors, since a server cannot be shut down."""
    settings.drop_proxies()
    cluster, job, index = settings.place()
    steps = os.environ.get("STEPS", "600")
    if not steps.isdigit() or int(steps) < 1:
        settings.refuse("STEPS", steps, "is no number of steps")
    Replica(cluster, settings.protocol()).run(job, index, int(steps))
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
