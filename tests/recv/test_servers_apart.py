"""Servers of one machine share nothing that each should have drawn for itself."""

from __future__ import annotations

import os
import signal
import sys

import psutil
import pytest
import tensorflow as tf

from common.ar import thresholds
from common.fixtures import ClusterFactory
from common.processes import Cluster, child_env, own_address
from common.protocols import AR
from common.sessions import config
from common.warm import Warm


def test_incarnations_differ(cluster: Cluster) -> None:
    """By its incarnation a restarted server, or one that was forked from another, is known."""
    with tf.compat.v1.Session(cluster.target(), config=config()) as session:
        incarnations = [device.incarnation for device in session.list_devices()]
    assert len(incarnations) >= len(cluster.tasks)
    assert len(set(incarnations)) == len(incarnations), incarnations


def test_servers_are_forked_where_it_is_asked_for(
    request: pytest.FixtureRequest, new_ar_cluster: ClusterFactory
) -> None:
    """What is ours in their environments is as of their start, and how they end is known."""
    cluster = new_ar_cluster({"AR_GRPC_ARENA_SIZE": "24M"}, ps=1, worker=2)
    warm = request.config.getoption("--warm-servers")
    for task in cluster.tasks:
        assert (psutil.Process(cluster[task].pid).ppid() != os.getpid()) == warm
        status = cluster[task].status()
        assert status["arena"]["size"] == 24 * 2**20
        assert [name for _, _, name in thresholds(status)] == ["eager", "rendezvous"]
    cluster["worker:1"].signal(signal.SIGTERM)
    assert cluster["worker:1"]._process.wait(10) == -signal.SIGTERM
    assert cluster["worker:0"].leave(30) == 0
    assert cluster.dead() == ["worker:0", "worker:1"]


@pytest.mark.slow
def test_a_python_that_forks_servers_and_dies_is_replaced() -> None:
    """Its servers live on, and can be ended."""
    warm = Warm()
    warm.allow(child_env())
    settings = {"cluster": {"worker": [own_address()]}, "job": "worker", "index": 0, "protocol": AR}
    servers = []
    try:
        for _ in range(2):
            server = warm.start(child_env(), settings, sys.stderr.fileno())
            assert server is not None and server.stdout is not None
            servers.append(server)
            assert server.stdout.readline().startswith(b"READY")
            os.kill(psutil.Process(server.pid).ppid(), signal.SIGKILL)
            assert server.poll() is None
            server.kill()
            assert server.wait(10) == -signal.SIGKILL
    finally:
        for server in servers:
            server.kill()
        warm.close()
    assert servers[0].pid != servers[1].pid
