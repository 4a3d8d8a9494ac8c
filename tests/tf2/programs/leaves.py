"""A process that used a server in one of several ways, and then just returns from main()."""

from __future__ import annotations

import json
import sys
from typing import Any

import tensorflow as tf


def step(target: str) -> Any:
    """An open session, after a step over the cluster."""
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            sent = tf.random.uniform([1 << 20])
        with tf.device("/job:worker/task:0"):
            got = sent + 1.0
        session = tf.compat.v1.Session(target)
        session.run(got)
    return session


def own_server(settings: dict[str, Any]) -> Any:
    """Serves as another worker of the running cluster, and is the master of a step."""
    spec = {**settings["cluster"], "extra": [settings["own"]]}
    server = tf.distribute.Server(spec, job_name="extra", protocol=settings["protocol"])
    return server, step(server.target)


def closed_session(settings: dict[str, Any]) -> Any:
    server, session = own_server(settings)
    session.close()
    return server


def deleted_server(settings: dict[str, Any]) -> Any:
    server, session = own_server(settings)
    session.close()
    del server


def unused_server(settings: dict[str, Any]) -> Any:
    return tf.distribute.Server.create_local_server(), tf.distribute.Server(
        {"extra": [settings["own"]]}, job_name="extra", protocol=settings["protocol"]
    )


def client_only(settings: dict[str, Any]) -> Any:
    return step(f"grpc://{settings['cluster']['worker'][0]}")


def eager_context(settings: dict[str, Any]) -> Any:
    tf.config.experimental_connect_to_cluster(
        tf.train.ClusterSpec(settings["cluster"]), "client", protocol=settings["protocol"]
    )
    with tf.device("/job:worker/task:0"):
        return tf.random.uniform([1 << 20]) + 1.0


def raises(settings: dict[str, Any]) -> Any:
    kept = own_server(settings)
    say_leaving()
    raise ValueError(f"on purpose, with {len(kept)} objects alive")


def say_leaving() -> None:
    """Its last word: from here on the test counts how long it takes to leave."""
    print(json.dumps("leaving"), flush=True)


KEPT: list[Any] = []


def main() -> None:
    settings = json.loads(sys.argv[1])
    KEPT.append(globals()[settings["how"]](settings))
    say_leaving()


if __name__ == "__main__":
    main()
