"""A step's cleanup travels with the next step's request, and none is lost."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import tensorflow as tf

from common.ar import eventually
from common.fixtures import ClusterFactory
from common.growth import heap, most, per_step, sampled
from common.processes import Cluster
from common.protocols import AR, STOCK
from common.sessions import config, task_device

PS, WORKER = "ps:0", "worker:0"
STEPS = 2000
#: protocol/step_cleanups.h's kPatienceMs.
PATIENCE_S = 0.010

pytestmark = pytest.mark.timeout(120)


@contextmanager
def steps_on(cluster: Cluster) -> Iterator[Callable[[], None]]:
    """A step that brings one value from the parameter server to the worker, whose the master is."""
    numbers = itertools.count()
    with tf.Graph().as_default():
        with tf.device(task_device(PS)):
            fed = tf.compat.v1.placeholder(tf.int64, [])
            sent = fed * 3
        with tf.device(task_device(WORKER)):
            got = sent + 1
        with tf.compat.v1.Session(cluster.target(WORKER), config=config()) as session:
            step_of = session.make_callable(got, [fed])

            def step() -> None:
                number = next(numbers)
                assert step_of(number) == number * 3 + 1

            step()  # the first answer tells whether the server knows of piggybacked cleanups
            yield step


def counts(cluster: Cluster, task: str) -> dict[str, int]:
    """What came to the task's server, with requests or by calls, and what calls its master made."""
    found: dict[str, int] = cluster[task].status()["cleanups"]
    return found


def arrived(cluster: Cluster) -> dict[str, int]:
    """How cleanups have come to the parameter server."""
    return {way: n for way, n in counts(cluster, PS).items() if way != "calls_made"}


@pytest.fixture(params=["shm", "tcp"])
def fabric_pair(request: pytest.FixtureRequest, new_ar_cluster: ClusterFactory) -> Cluster:
    return new_ar_cluster({"AR_GRPC_FABRICS": request.param}, ps=1, worker=1)


def all_but(cluster: Cluster, before: dict[str, int], steps: int) -> dict[str, int]:
    """What has come since `before`, when that of each of `steps` has."""

    def since() -> dict[str, int]:
        return {way: count - before[way] for way, count in arrived(cluster).items()}

    assert eventually(lambda: sum(since().values()) == steps), since()
    return since()


def test_the_next_step_takes_the_cleanup_along(fabric_pair: Cluster) -> None:
    """But for those that waited too long, of which each time that is over sends one at most."""
    with steps_on(fabric_pair) as step:
        all_but(fabric_pair, {"piggybacked": 0, "called": 0}, 1)
        before, start = arrived(fabric_pair), time.monotonic()
        for _ in range(STEPS):
            step()
        over = (time.monotonic() - start) / PATIENCE_S
        came = all_but(fabric_pair, before, STEPS)
    assert came["called"] <= over + 1
    assert came["piggybacked"] > 0


def test_what_no_step_takes_along_is_sent(fabric_pair: Cluster) -> None:
    steps = 20
    with steps_on(fabric_pair) as step:
        before = {"piggybacked": 0, "called": 0}
        for count in range(1, steps + 1):
            assert all_but(fabric_pair, before, count) == {"piggybacked": 0, "called": count}
            step()


def test_a_step_that_fails_is_cleaned_up(fabric_pair: Cluster) -> None:
    """Whether or not the request arrived that took an earlier one's cleanup along."""
    fails, steps = tf.errors.InvalidArgumentError, 20
    with tf.Graph().as_default():
        with tf.device(task_device(PS)):
            fed = tf.compat.v1.placeholder(tf.int64, [])
            with tf.control_dependencies([tf.debugging.assert_equal(fed % 2, tf.zeros_like(fed))]):
                sent = fed * 3
        with tf.device(task_device(WORKER)):
            got = sent + 1
        with tf.compat.v1.Session(fabric_pair.target(WORKER), config=config()) as session:
            step_of = session.make_callable(got, [fed])
            for number in range(steps):
                if number % 2:
                    with pytest.raises(fails):
                        step_of(number)
                else:
                    assert step_of(number) == number * 3 + 1
            # Some may come twice, and so one that is lost may not show.
            assert eventually(lambda: sum(arrived(fabric_pair).values()) >= steps)

            def every_call_came() -> bool:
                # The last step's call may be made after the step has ended.
                return arrived(fabric_pair)["called"] == counts(fabric_pair, WORKER)["calls_made"]

            assert eventually(every_call_came)


def test_a_server_that_does_not_know_of_it_gets_calls(new_ar_cluster: ClusterFactory) -> None:
    cluster = new_ar_cluster(ps=1, worker=1, protocols={PS: STOCK})
    with steps_on(cluster) as step:
        for _ in range(STEPS):
            step()
        made = eventually(lambda: counts(cluster, WORKER)["calls_made"] == STEPS + 1)
    assert made, counts(cluster, WORKER)


@pytest.mark.parametrize("ps", [AR, STOCK])
def test_a_server_keeps_nothing_of_a_step(ps: str, new_ar_cluster: ClusterFactory) -> None:
    cluster = new_ar_cluster(ps=1, worker=1, protocols={PS: ps})
    with steps_on(cluster) as step:

        def run(count: int) -> None:
            for _ in range(count):
                step()

        samples = sampled(STEPS, run, lambda: {"heap": heap(cluster, PS)})
    assert per_step(samples, STEPS)["heap"] <= most(STEPS)
