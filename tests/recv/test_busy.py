"""A connection that is never idle: what waits for a turn on it gets one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any, Callable

import pytest
import tensorflow as tf

from common.ar import Moved, wait_no_offers
from common.fixtures import ClusterFactory
from common.loops import Loop, callable_of
from common.pair import MIB, PS, WORKER, large_step, session_at
from common.processes import Cluster
from common.repeated import few
from common.sessions import task_device

pytestmark = pytest.mark.timeout(180)

KIB = 2**10


@pytest.fixture
def fabric() -> str:
    return "shm"


# --- releases beside a busy stream ----------------------------------------------------------------


def eager_step(way: tuple[str, str], strings: int = 8, size: int = 128 * KIB) -> Any:
    """Strings, which always travel in the stream; 0.0 where all of them came."""
    with tf.device(task_device(way[0])):
        sent = [tf.strings.reduce_join(tf.fill([size // KIB], "x" * KIB)) for _ in range(strings)]
    with tf.device(task_device(way[1])):
        wrong = [tf.cast(tf.strings.length(each) - size, tf.float64) for each in sent]
        return tf.add_n(wrong)


@contextmanager
def busy_both_ways(cluster: Cluster) -> Iterator[list[Loop]]:
    """Eager bytes go both ways all the while, asked for by both tasks."""
    with ExitStack() as sessions:
        loops = []
        for way in ((PS, WORKER), (WORKER, PS)) * 2:
            session = sessions.enter_context(session_at(cluster.target(way[1])))
            loops.append(Loop(callable_of(session, eager_step(way))))
        yield loops
        for loop in loops:
            assert loop.finish() is None


@pytest.mark.parametrize("way", [(PS, WORKER), (WORKER, PS)], ids=["ps-to-worker", "worker-to-ps"])
def test_tensors_are_released_beside_a_busy_stream(pair: Cluster, way: tuple[str, str]) -> None:
    """What was read is let go while the bytes of others keep on coming in both directions."""
    parts, rounds = 16, 40
    with busy_both_ways(pair) as loops, session_at(pair.target(way[1])) as session:
        for loop in loops:
            loop.wait_steps(3)
        run = session.make_callable(large_step(way, 1, parts))
        assert run() == 0.0
        wait_no_offers(pair, way[0])
        received, most = Moved(pair, way[1]), 0
        stream = pair[way[0]].status()["stream_bytes_sent"]
        steps = [loop.steps for loop in loops]
        for _ in range(rounds):
            assert run() == 0.0
            most = max(most, pair[way[0]].status()["offers_open"])
        done = time.monotonic()
        wait_no_offers(pair, way[0], seconds=5)
        late = time.monotonic() - done
        assert received()["rendezvous"] == rounds * parts
        # Those of the last two steps: a release that waited for an idle stream would wait for ever.
        print(f"held at most {most}, the last for {late:.3f} s")
        assert most <= 2 * parts and late < 4
        # The stream was not idle, in either direction.
        assert pair[way[0]].status()["stream_bytes_sent"] - stream > rounds * MIB
        for loop, before in zip(loops, steps):
            assert loop.steps > before


# --- a poller that encodes ------------------------------------------------------------------------


def small_step(session: Any) -> Callable[[], Any]:
    """Brings a tensor of 64 bytes; the first ones have run."""
    with tf.device(task_device(PS)):
        small = tf.random.uniform([16])
    with tf.device(task_device(WORKER)):
        step: Callable[[], Any] = session.make_callable(tf.reduce_sum(small))
    for _ in range(20):
        step()
    return step


def seconds_of(step: Callable[[], Any]) -> float:
    began = time.monotonic()
    step()
    return time.monotonic() - began


def large_variant() -> Any:
    """A list of one tensor of 192 MiB: nothing in the variant's own size shows it."""
    count = 192 * MIB // 8
    value = tf.fill([1, count], tf.random.uniform([], dtype=tf.float64))
    return tf.raw_ops.TensorListFromTensor(tensor=value, element_shape=[count])


def many_strings() -> Any:
    """Of one character each, drawn so that nothing is known of them before the step."""
    return tf.fill([3_000_000], tf.strings.as_string(tf.random.uniform([], 0, 9, tf.int32)))


def between_ends_of_variant(variant: Any) -> Any:
    element = tf.raw_ops.TensorListGetItem(
        input_handle=variant, index=0, element_shape=[-1], element_dtype=tf.float64
    )
    return element[0] - element[-1]


def between_ends_of_strings(strings: Any) -> Any:
    return tf.strings.to_number(strings[0], tf.float64) - tf.strings.to_number(
        strings[-1], tf.float64
    )


def stalls_beside(loop: Loop, few: Callable[[], Any]) -> Iterator[float]:
    """For each of the loop's steps, the longest small step beside it, as a part of its time."""
    longest, steps, began = 0.0, loop.steps, 0.0
    while loop.error is None:
        wait = seconds_of(few)
        longest = max(longest, wait)
        if loop.steps == steps:
            continue
        now = time.monotonic()
        if began:  # what was under way at the beginning is not known whole
            yield longest / (now - began)
        # A small step that spans the end of one is beside the next, too.
        longest, steps, began = wait, loop.steps, now


#: What takes long to encode → what makes it, and the difference of its ends, which are equal.
ENCODED: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "a variant": (large_variant, between_ends_of_variant),
    "strings": (many_strings, between_ends_of_strings),
}


@pytest.mark.parametrize("what", few(ENCODED, "a variant"))
def test_what_takes_long_to_encode_stalls_no_other(
    new_ar_cluster: ClusterFactory, what: str
) -> None:
    """It is encoded in a pool: the poller of its connection serves small steps meanwhile."""
    make, wrong_of = ENCODED[what]
    cluster = new_ar_cluster({"AR_GRPC_FABRICS": "shm"}, ps=1, worker=1)
    # What is there before it is asked for is encoded by the thread that the request came to, unless
    # that hands it on; so it is kept, and its own task is the master, which begins first.
    with session_at(cluster.target(PS), 60) as session:
        with tf.device(task_device(PS)):
            value = make()
            kept = tf.raw_ops.VarHandleOp(dtype=value.dtype, shape=value.shape)
            session.run(tf.raw_ops.AssignVariableOp(resource=kept, value=value))
            sent = tf.raw_ops.ReadVariableOp(resource=kept, dtype=value.dtype)
        with tf.device(task_device(WORKER)):
            wrong = wrong_of(sent)
        few = small_step(session)
        loop = Loop(callable_of(session, wrong))
        loop.wait_steps(1)
        stalls = list(islice(stalls_beside(loop, few), 9))
        assert loop.finish() is None
    print("longest stall as a part of its step:", [round(stall, 2) for stall in stalls])
    # A poller that encodes stalls a small step beside nearly every large one; a machine that has
    # other things to do does so beside some.
    assert sorted(stalls)[2] < 1 / 4, stalls


# --- a poller that allocates ----------------------------------------------------------------------


def test_a_tensor_that_waits_for_memory_stalls_no_other(new_ar_cluster: ClusterFactory) -> None:
    """TensorFlow's own pool waits ten seconds for memory: not in the thread that polls."""
    limit, held, more = 256, 192, 128  # MiB
    env = {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit)}
    cluster = new_ar_cluster({"AR_GRPC_FABRICS": "shm"}, envs={WORKER: env}, ps=1, worker=1)
    with session_at(cluster.target(), 60) as session:
        with tf.device(task_device(WORKER)):
            kept = tf.compat.v1.get_variable(
                "kept", [held * MIB // 8], tf.float64, tf.compat.v1.ones_initializer()
            )
        large = session.make_callable(large_step((PS, WORKER), more))
        session.run(kept.initializer)
        few = small_step(session)
        began, waits = time.monotonic(), []
        loop = Loop(large)
        while loop.is_alive():
            waits.append(seconds_of(few))
        error = loop.outcome()
        waited = loop.failed_at - began
    assert isinstance(error, tf.errors.ResourceExhaustedError), error
    print(f"waited {waited:.1f} s for memory, a small step {max(waits):.3f} s of {len(waits)}")
    assert waited > 8 and max(waits) < waited / 4
