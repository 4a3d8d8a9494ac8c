"""Servers of one machine share nothing that each should have drawn for itself."""

from __future__ import annotations

import tensorflow as tf

from common.processes import Cluster
from common.sessions import config


def test_incarnations_differ(cluster: Cluster) -> None:
    """By its incarnation a restarted server, or one that was forked from another, is known."""
    with tf.compat.v1.Session(cluster.target(), config=config()) as session:
        incarnations = [device.incarnation for device in session.list_devices()]
    assert len(incarnations) >= len(cluster.tasks)
    assert len(set(incarnations)) == len(incarnations), incarnations
