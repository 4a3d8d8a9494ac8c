"""A client of `grpc+ar` with 0, 1, 2, … free descriptors, and at last with as many as it wants.

Prints for each what came of a step: its value and the path, or the error; and the seconds.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Any

import tensorflow as tf
from tensorflow.python import ar_grpc

LIMIT = 512


def session_to(target: str, seconds: float) -> Any:
    config = tf.compat.v1.ConfigProto(operation_timeout_in_ms=int(seconds * 1000))
    return tf.compat.v1.Session(target, config=config)


def step(target: str, seconds: float) -> Any:
    with tf.Graph().as_default():
        fed = tf.compat.v1.placeholder(tf.int64, [])
        total = tf.reduce_sum(tf.range(fed))
        with session_to(target, seconds) as session:
            value = session.run(total, {fed: 100000}).item()
            address = "ipv4:" + target.split("//")[1]
            return {"value": value, "path": ar_grpc.status()["paths"].get(address, "plain")}


def attempt(target: str, seconds: float) -> dict[str, Any]:
    began = time.monotonic()
    try:
        outcome = step(target, seconds)
    except tf.errors.OpError as error:
        outcome = {"error": type(error).__name__, "text": error.message}
    return {**outcome, "seconds": time.monotonic() - began}


def fill(free: int) -> list[int]:
    """Takes all descriptors but `free`."""
    taken = []
    while True:
        try:
            taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            break
    for _ in range(free):
        os.close(taken.pop())
    return taken


def attempts(target: str, seconds: float, most: int) -> list[dict[str, Any]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, before[1]))
    rows = []
    for free in range(most + 1):
        taken = fill(free)
        row = attempt(target, seconds)
        for descriptor in taken:
            os.close(descriptor)
        rows.append({"free": free, **row})
        if row.get("path") == "shm":
            break
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    return [*rows, {"free": before[0], **attempt(target, 20)}]


def main() -> None:
    settings = json.loads(sys.argv[1])
    target = settings["target"]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        session.run(tf.constant(1))  # what TensorFlow itself opens
    # Another server's, as sessions to one server share a connection.
    with session_to(settings["other"], 20) as keeps_grpc_up:
        keeps_grpc_up.list_devices()
        rows = attempts(target, settings["seconds"], settings["most"])
    print(json.dumps(rows), flush=True)


if __name__ == "__main__":
    main()
