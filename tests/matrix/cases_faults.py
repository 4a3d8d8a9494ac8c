"""faults: what fails, fails in time with the right error, and afterwards the path works again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import tensorflow as tf

from common.interrupted import (
    PROMPT,
    PS,
    WORKER,
    assert_works,
    blocked_step,
    long_transfer,
    session_on,
)
from common.limits import LATE
from common.loops import Loop
from common.processes import Cluster
from common.sessions import deadline_within, lost
from matrix.cases import case
from matrix.cases_steps import WORKS, transfer

faults = partial(case, "faults")

#: Steps of long_transfer() that tell how long one takes.
ROUNDS = 4


@faults(
    "deadline",
    "a step that waits and one in mid-transfer end at their deadline, and the next one works",
    transfer(128) * ROUNDS + WORKS,
)
def deadline(cluster: Cluster) -> None:
    second = tf.compat.v1.RunOptions(timeout_in_ms=1000)
    with session_on(cluster) as session:
        never = blocked_step()
        session.list_devices()  # it is there
        began = time.monotonic()
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(never, options=second)
        assert 0.9 < time.monotonic() - began < 1 + LATE
    with session_on(cluster) as session:
        step = long_transfer(PS, WORKER, 128)
        options = deadline_within(1 / 8, partial(session.run, step), ROUNDS)
        missed = False
        for _ in range(4):  # the machine may have been slow only while the step's time was taken
            try:
                session.run(step, options=options)
            except tf.errors.DeadlineExceededError:
                missed = True
                break
        assert missed
    assert_works(cluster)


@contextmanager
def _transferring(cluster: Cluster, way: tuple[str, str]) -> Iterator[tuple[Any, Any, Loop]]:
    """A session whose steps bring 64 MiB over `way`, again and again; its step, and the loop."""
    with session_on(cluster) as session:
        step = long_transfer(*way, mib=64)
        loop = Loop(partial(session.run, step))
        loop.wait_steps(2, PROMPT)
        time.sleep(0.1)
        yield session, step, loop


@faults(
    "peer killed",
    "the sender dies in mid-transfer: Unavailable in time; its successor works",
    WORKS,
    then=assert_works,
)
def peer_killed(cluster: Cluster) -> None:
    with _transferring(cluster, (PS, WORKER)) as (session, step, loop):
        killed = time.monotonic()
        cluster[PS].kill()
        loop.is_lost(PS, killed)
        with pytest.raises(tf.errors.UnavailableError) as away:  # and so do later steps
            session.run(step)
        assert lost(away.value, PS), str(away.value)
        cluster.restart(PS)


@faults(
    "peer restarted",
    "the receiver's successor is there at once: the old session is told so, a new one works",
    WORKS,
    then=assert_works,
)
def peer_restarted(cluster: Cluster) -> None:
    with _transferring(cluster, (WORKER, PS)) as (session, step, loop):
        killed = time.monotonic()
        cluster.restart(PS)
        loop.is_lost(PS, killed)
        assert_works(cluster)
        # TensorFlow does not let the old session go on: it says so, which is how callers know. A
        # receive that it cancels for that may end first; then the error is of that kind, and the
        # reason follows in it (seen over stock on a busy machine).
        with pytest.raises(
            (tf.errors.AbortedError, tf.errors.CancelledError), match="just restarted"
        ):
            session.run(step)
