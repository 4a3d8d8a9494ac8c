"""What fails, fails in time with the right error, and everything works again afterwards."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from common.ar import eventually
from common.fixtures import ClusterFactory
from common.interrupted import (
    OTHER,
    PROMPT,
    PS,
    WORKER,
    assert_works,
    blocked,
    blocked_step,
    long_transfer,
    session_on,
)
from common.limits import LATE
from common.loops import Loop
from common.processes import Cluster, Program, own_address, run_program
from common.sessions import (
    cancelled_by_close,
    config,
    deadline_within,
    lost,
    refused_after_close,
    task_device,
)

pytestmark = pytest.mark.timeout(180)


# --- cancellation and deadlines: the servers live on ----------------------------------------------


def test_deadline(cluster: Cluster) -> None:
    options = tf.compat.v1.RunOptions(timeout_in_ms=2000)
    with session_on(cluster) as session:
        never, fine = blocked_step(), long_transfer(PS, WORKER, 1)
        assert session.run(fine) == 0.0  # the session is there
        began = time.monotonic()
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(never, options=options)
        assert 2 <= time.monotonic() - began < 2 + LATE
        assert session.run(fine) == 0.0
    assert_works(cluster)


def test_deadline_mid_transfer(cluster: Cluster) -> None:
    missed = 0
    for part in (1 / 8, 1 / 4, 1 / 2):
        with session_on(cluster) as session:
            step = long_transfer(PS, WORKER)
            options = deadline_within(part, partial(session.run, step))
            try:
                # In time all the same where others left the machine after its time was taken.
                assert session.run(step, options=options) == 0.0
            except tf.errors.DeadlineExceededError:
                missed += 1
        assert_works(cluster)
    assert missed


def test_cancelled_by_close(cluster: Cluster) -> None:
    """A waiting step ends when another thread closes its session."""
    with session_on(cluster) as session:
        loop = blocked(session)
        assert loop.is_alive()
        session.close()
        assert cancelled_by_close(loop.outcome()), str(loop.error)
    assert_works(cluster)


@pytest.mark.parametrize("way", [(PS, WORKER), (WORKER, PS)], ids=["ps-to-worker", "worker-to-ps"])
def test_session_closed_mid_transfer(cluster: Cluster, way: tuple[str, str]) -> None:
    """Closed at several moments of a running step, of which some at least are in mid-transfer."""
    cancelled = 0
    for delay in (0.0, 0.02, 0.05, 0.1, 0.2, 0.5):
        with session_on(cluster) as session:
            step = long_transfer(*way)
            loop = Loop(partial(session.run, step))
            loop.wait_steps(1, PROMPT)
            time.sleep(delay)
            session.close()
            error = loop.outcome()
            if cancelled_by_close(error):
                cancelled += 1
            else:
                assert refused_after_close(error), f"{error!r}: {error}"
        assert_works(cluster)
    assert cancelled >= 2


def test_failing_operation_on_the_peer(cluster: Cluster) -> None:
    """The peer's own error arrives, although the receiver waits for more of its tensors."""
    with session_on(cluster) as session:
        with tf.device(task_device(PS)):
            index = tf.compat.v1.placeholder(tf.int32, [])
            picked = tf.gather(tf.range(5), index)
        with tf.device(task_device(WORKER)):
            step = [picked + 1, long_transfer(PS, WORKER, 16), blocked_step()]
        with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
            session.run(step, {index: 99})
    assert_works(cluster)


def test_paused_peer(cluster: Cluster) -> None:
    """A peer that hangs (SIGSTOP) costs a deadline; once it goes on, it is used again."""
    options = tf.compat.v1.RunOptions(timeout_in_ms=3000)
    with session_on(cluster) as session:
        step = long_transfer(PS, WORKER, 16)
        assert session.run(step) == 0.0
        cluster[PS].stand_still()
        try:
            began = time.monotonic()
            with pytest.raises(tf.errors.DeadlineExceededError):
                session.run(step, options=options)
            assert 3 <= time.monotonic() - began < 3 + LATE
        finally:
            cluster[PS].signal(signal.SIGCONT)
    assert_works(cluster)


# --- killed peers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("victim", "way"),
    [
        pytest.param(PS, (PS, WORKER), id="sender"),
        pytest.param(PS, (WORKER, PS), id="receiver"),
        pytest.param(OTHER, (PS, OTHER), id="third-process"),
    ],
)
def test_peer_killed_mid_transfer(cluster: Cluster, victim: str, way: tuple[str, str]) -> None:
    """Unavailable in time; a new session reaches the restarted peer at its first step."""
    with session_on(cluster) as session:
        step, other_step = long_transfer(*way), long_transfer(*way, mib=1)
        loop = Loop(partial(session.run, step))
        loop.wait_steps(2, PROMPT)
        time.sleep(0.1)
        killed = time.monotonic()
        cluster[victim].kill()
        loop.is_lost(victim, killed)
        with pytest.raises(tf.errors.UnavailableError) as away:  # and so do later steps
            session.run(step)
        assert lost(away.value, victim), str(away.value)
        cluster.restart(victim)
        assert_works(cluster)
        # TensorFlow does not let the old session go on: it says so, which is how callers know.
        with pytest.raises(tf.errors.AbortedError, match="just restarted"):
            session.run(other_step)
    assert_works(cluster)


def test_master_killed_mid_transfer(cluster: Cluster) -> None:
    """The client dials a lost master until its deadline; a restarted one has lost the session."""
    with session_on(cluster) as session:
        step = long_transfer(PS, WORKER)
        loop = Loop(partial(session.run, step))
        loop.wait_steps(1, PROMPT)
        time.sleep(0.1)
        cluster.restart(WORKER)
        error = loop.outcome(PROMPT)  # the client waits longer each time before it dials again
        assert isinstance(error, tf.errors.AbortedError) and "is not found" in str(error), error
        assert_works(cluster)
        with pytest.raises(tf.errors.AbortedError, match="is not found"):
            session.close()
    assert_works(cluster)


class Sessions(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Counts the sessions that a MonitoredSession makes: the first, and one for each recovery."""

    made = 0

    def after_create_session(self, session: Any, coord: Any) -> None:
        del session, coord
        self.made += 1


def run_recovering(session: Any, step: Any) -> Any:
    """A step of a MonitoredSession, which takes Aborted and Unavailable for a lost peer.

    Upstream reports the first error of a step: when the waiting Recv is cancelled before the lost
    peer's Aborted arrives, that is Cancelled, and the next run recovers.
    """
    try:
        return session.run(step)
    except tf.errors.CancelledError as error:
        assert "just restarted" in str(error)
        return session.run(step)


def test_monitored_session_goes_on(cluster: Cluster) -> None:
    """The same MonitoredSession outlives three kills of the ps: TensorFlow's own recovery.

    Each costs it one new session: that one reaches the restarted ps at its first step.
    """
    sessions = Sessions()
    with tf.Graph().as_default():
        step = long_transfer(PS, WORKER, 4)
        with tf.compat.v1.train.MonitoredTrainingSession(
            cluster.target(),
            config=config(),
            hooks=[sessions],
            save_summaries_steps=None,
            save_summaries_secs=None,
        ) as session:
            assert run_recovering(session, step) == 0.0
            for kill in range(3):
                assert sessions.made == 1 + kill
                cluster.restart(PS)
                assert run_recovering(session, step) == 0.0
            assert sessions.made == 4
    assert_works(cluster)


# --- ClusterCoordinator ---------------------------------------------------------------------------

COORDINATOR = Path(__file__).with_name("programs") / "coordinator.py"
RESULTS = [float(number) for number in range(60)]


def settings(cluster: Cluster, victim: str = "") -> dict[str, Any]:
    return {
        "cluster": {**cluster.spec, "chief": [own_address()]},
        "protocol": cluster.protocol,
        "kill": cluster[victim].pid if victim else 0,
    }


def test_coordinator_sees_a_ps_failure(new_cluster: ClusterFactory) -> None:
    """join() raises UnavailableError that names the ps; a new coordinator works after a restart."""
    cluster = new_cluster(ps=1, worker=2)
    result = run_program(COORDINATOR, settings(cluster, PS), 120).result()
    assert "UnavailableError" in result["error"], result
    assert "GRPC error information from remote target /job:ps" in result["text"]
    assert result["seconds"] < PROMPT
    cluster.restart(PS)
    assert run_program(COORDINATOR, settings(cluster), 120).result() == RESULTS


def test_coordinator_survives_a_worker_failure(new_cluster: ClusterFactory) -> None:
    """What ran on a killed worker is run again by the other one."""
    cluster = new_cluster(ps=1, worker=2)
    assert run_program(COORDINATOR, settings(cluster, OTHER), 120).result() == RESULTS
    assert cluster.dead() == [OTHER]


@pytest.mark.timeout(300)
def test_coordinator_uses_a_restarted_worker(new_cluster: ClusterFactory) -> None:
    """The only worker is killed: its functions wait for its successor on the same port."""
    cluster = new_cluster(ps=1, worker=1)
    program = Program(COORDINATOR, settings(cluster, WORKER))
    try:
        # The program kills it, when it has imported TensorFlow and run some functions.
        assert eventually(cluster.dead, 150) == [WORKER]
        cluster.restart(WORKER)
        assert program.wait(120).result() == RESULTS
    finally:
        program.kill()
