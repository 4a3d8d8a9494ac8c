"""Clusters made by TensorFlow's own helpers, with our protocol; prints values that crossed them."""

from __future__ import annotations

import json
import sys
import types
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import multi_process_lib, multi_worker_test_base
from tensorflow.python.framework import test_util

from common.processes import free_port

# The helpers ask this package for ports, and TensorFlow does not install it.
sys.modules["portpicker"] = types.SimpleNamespace(pick_unused_port=free_port)  # type: ignore


def through_session(target: str) -> list[float]:
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            fed = tf.compat.v1.placeholder(tf.float32, [1025])
            sent = fed * 2.0
        with tf.device("/job:worker/task:1"):
            got = sent + 1.0
        with tf.compat.v1.Session(target) as session:
            values = session.run(got, {fed: range(1025)})
    return [float(values[0]), float(values[-1])]


def create_local_cluster(protocol: str) -> Any:
    workers, _ = test_util.create_local_cluster(num_workers=2, num_ps=1, protocol=protocol)
    return through_session(workers[0].target)


def create_in_process_cluster(protocol: str) -> Any:
    spec = multi_worker_test_base.create_in_process_cluster(2, 1, rpc_layer=protocol)
    return through_session(f"grpc://{spec['worker'][0]}")


def create_multi_process_cluster(protocol: str) -> Any:
    # What multi_process_runner.test_main() does, less its search for a Bazel binary.
    multi_process_lib._test_main_called = True
    cluster = multi_worker_test_base.create_multi_process_cluster(2, 1, rpc_layer=protocol)
    resolver = cluster.cluster_resolver
    assert resolver.rpc_layer == protocol
    try:
        return through_session(f"grpc://{resolver.cluster_spec().as_dict()['worker'][0]}")
    finally:
        cluster.stop()


def main() -> None:
    settings = json.loads(sys.argv[1])
    print(json.dumps(globals()[settings["maker"]](settings["protocol"])))


if __name__ == "__main__":
    main()
