"""RunGraph requests keep different ids even where all generators walk the same sequence."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from common.fixtures import ClusterFactory
from common.preload import preloadable
from common.protocols import STOCK
from common.sessions import config, task_device

_THREADS = 8
_STEPS = 50


@pytest.fixture(scope="session")
def equal_seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = Path(__file__).with_name("equal_seeds.cc")
    return preloadable(source, tmp_path_factory.mktemp("preload"))


def test_ids_do_not_collide(protocol: str, new_cluster: ClusterFactory, equal_seeds: Path) -> None:
    cluster = new_cluster({"LD_PRELOAD": str(equal_seeds)}, ps=1, worker=1)
    errors: list[Exception] = []
    sums: list[Any] = []
    with tf.Graph().as_default():
        with tf.device(task_device("ps:0")):
            x = tf.compat.v1.placeholder(tf.int64, [3])
            doubled = x * 2
        with tf.device(task_device("worker:0")):
            total = tf.reduce_sum(doubled)
        with tf.compat.v1.Session(cluster.target("worker:0"), config=config()) as session:

            def steps(first: int) -> None:
                try:
                    for i in range(first, first + _STEPS):
                        sums.append((i, session.run(total, {x: [i, i, i]})))
                except tf.errors.OpError as error:
                    errors.append(error)

            threads = [threading.Thread(target=steps, args=(i * _STEPS,)) for i in range(_THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    if protocol == STOCK:
        # That the untouched wheel fails is what proves that the collision is forced.
        assert any(isinstance(error, tf.errors.AbortedError) for error in errors), errors
        assert any("received twice" in str(error) for error in errors), errors
        return
    assert errors == [], [str(e) for e in errors]
    assert sorted(sums) == [(i, 6 * i) for i in range(_THREADS * _STEPS)]
