"""Prints, as JSON, what became of sessions whose master is in their own process."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python import ar_grpc

from common.counted import new_threads


def outcome(step: Callable[[], Any]) -> str:
    """The step's value, or the name of its error and whether it misses the session."""
    try:
        return str(step())
    except (tf.errors.OpError, RuntimeError) as error:
        return type(error).__name__ + (": is not found" * ("is not found" in str(error)))


def callable_of(session: Any, fed: Any, got: Any) -> Callable[..., list[Any]]:
    """A step by the RPC RunCallable; `make_callable` is RunStep where something is fed."""
    options = config_pb2.CallableOptions(feed=[fed.name], fetch=[got.name])
    call: Callable[..., list[Any]] = session._make_callable_from_options(options)
    return call


def main() -> dict[str, Any]:
    settings = json.loads(sys.argv[1])
    steps = settings["steps"]
    _, server = (
        tf.distribute.Server(settings["cluster"], job_name=job, protocol=settings["protocol"])
        for job in ("ps", "worker")
    )
    said: dict[str, Any] = {}
    two = np.float32(2)
    said["scheme"] = ar_grpc.session_target(server.target.encode()).split(b":")[0].decode()
    said["other schemes"] = [
        str(ar_grpc.session_target(target)) for target in (None, b"", b"grpc://127.0.0.1:1", b"x")
    ]
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            fed = tf.compat.v1.placeholder(tf.float32, [])
            sent = fed * 3
        with tf.device("/job:worker/task:0"):
            got = sent + 1
            queue = tf.queue.FIFOQueue(1, tf.float32, [[]])
            put, take = queue.enqueue(fed), queue.dequeue()
        limit = tf.compat.v1.RunOptions(timeout_in_ms=300)
        by_rpc = tf.compat.v1.ConfigProto()
        by_rpc.rpc_options.use_rpc_for_inprocess_master = True
        with tf.compat.v1.Session(server.target, config=by_rpc) as session:
            said["by rpc"] = outcome(lambda: session.run(got, {fed: 2}))

        session = tf.compat.v1.Session(server.target)
        said["run"] = outcome(lambda: session.run(got, {fed: 2}))
        said["run with a limit"] = outcome(lambda: session.run(got, {fed: 2}, options=limit))
        said["threads"] = new_threads(steps, lambda: session.run(got, {fed: 2}))
        said["callable"] = outcome(lambda: callable_of(session, fed, got)(two)[0])
        call = callable_of(session, fed, got)
        said["threads of a callable"] = new_threads(steps, lambda: call(two))
        timed = tf.compat.v1.RunOptions(timeout_in_ms=60000)
        said["threads with a limit"] = new_threads(
            steps, lambda: session.run(got, {fed: 2}, options=timed)
        )

        began = time.monotonic()
        said["late"] = outcome(lambda: session.run(take, options=limit))
        said["late by"] = time.monotonic() - began - 0.3
        said["after the late one"] = outcome(lambda: session.run(got, {fed: 2}))

        waiting: list[str] = []

        def wait() -> None:
            waiting.append(outcome(lambda: session.run(take)))

        waiter = threading.Thread(target=wait)
        waiter.start()
        time.sleep(0.2)  # so that it waits, most likely
        session.run(put, {fed: 7})
        waiter.join(30)
        said["waited for another step"] = waiting.pop()
        while not waiting or waiting[-1] == "RuntimeError":  # closed before it waited
            session = tf.compat.v1.Session(server.target)
            waiter = threading.Thread(target=wait)
            waiter.start()
            time.sleep(0.2)
            session.close()
            waiter.join(30)
        said["closed meanwhile"] = waiting[-1]

        session = tf.compat.v1.Session(server.target)
        call = callable_of(session, fed, got)
        said["callable before the reset"] = outcome(lambda: call(two)[0])
        tf.compat.v1.Session.reset(server.target)
        said["reset meanwhile"] = outcome(lambda: session.run(got, {fed: 2}))
        said["callable of a reset session"] = outcome(lambda: call(two))
    return said


if __name__ == "__main__":
    print(json.dumps(main()), flush=True)
    os._exit(0)
