"""A process of `grpc+ar` in an environment of its own: makes a server, or runs steps at targets.

Prints for each attempt its value or its error, and the seconds it took; at the end its counters.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python import ar_grpc


def make_server(spec: dict[str, list[str]]) -> str:
    server = tf.distribute.Server(tf.train.ClusterSpec(spec), "ps", 0, protocol="grpc+ar")
    return str(server.target)


def run_step(target: str, seconds: float) -> Any:
    config = tf.compat.v1.ConfigProto(operation_timeout_in_ms=int(seconds * 1000))
    with tf.Graph().as_default():
        fed = tf.compat.v1.placeholder(tf.int64, [])
        with tf.compat.v1.Session(target, config=config) as session:
            return session.run(tf.reduce_sum(tf.range(fed)), {fed: 100000}).item()


def attempt(what: Callable[[], Any]) -> dict[str, Any]:
    began = time.monotonic()
    try:
        outcome = {"value": what()}
    except tf.errors.OpError as error:
        outcome = {"error": type(error).__name__, "text": error.message}
    return {**outcome, "seconds": time.monotonic() - began}


def main() -> None:
    settings = json.loads(sys.argv[1])
    attempts = []
    if settings.get("server"):
        attempts.append(attempt(lambda: make_server(settings["server"])))
    for target in settings.get("targets", []):
        attempts.append(attempt(lambda target=target: run_step(target, settings["seconds"])))  # type: ignore[misc]
    print(json.dumps({"attempts": attempts, "status": ar_grpc.status()}), flush=True)


if __name__ == "__main__":
    main()
