"""recv: loops, concurrent steps, either side first, steps that are cancelled or aborted."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from common.ar import eventually
from common.graphs import Built, explicit_hop, fed_on
from common.interrupted import (
    OTHER,
    PROMPT,
    PS,
    WORKER,
    Signal,
    assert_works,
    blocked,
    blocked_step,
    endless_transfer,
    long_transfer,
    session_on,
)
from common.loops import Loop, undisturbed
from common.paths import COUNTERS, LARGE
from common.processes import Cluster
from common.sessions import (
    On,
    cancelled_by_close,
    check,
    difference,
    task_device,
)
from matrix.cases import case
from matrix.meter import Payload, carried, read

recv = partial(case, "recv: steps")

#: What assert_works() moves: three arrays of int32, each over four hops.
WORKS = Payload(small=4 * 4 * (1 + 65537), large=4 * 4 * 2**20)


def transfer(mib: int) -> Payload:
    """What a step of long_transfer() moves: one tensor of half that size, and `mib` of 512 KiB."""
    return Payload(small=mib * 2**19, large=mib * 2**19)


# --- loops ----------------------------------------------------------------------------------------

ITERATIONS = 200
LOOPED = {257: ITERATIONS, LARGE // 8 + 1: 5}  # elements of int64: how often


@recv(
    "loop frames",
    "while loops (v1, v2, one within another) whose bodies span ps and worker",
    Payload(small=2 * 2 * 8 * 257 * ITERATIONS, large=2 * 2 * (LARGE + 8) * 5),
)
def loop_frames(cluster: Cluster) -> None:
    """Each iteration's value goes to the worker and back; a wrong one changes all that follow."""

    def step(on: On, value: Any, number: Any) -> Any:
        with on(PS):
            there = value * 3 + number
        with on(WORKER):
            back = tf.bitwise.bitwise_xor(there, number * 7919)
        with on(PS):
            return back + 1

    def loop(on: On, value: Any, times: Any, body: Any) -> Any:
        with on(PS):
            zero = tf.constant(0, tf.int64)
            return tf.while_loop(
                lambda number, _: number < times,
                lambda number, now: (number + 1, body(on, now, number)),
                (zero, value),
            )[1]

    def nested(on: On, value: Any, number: Any) -> Any:
        return loop(on, value + number, 5, step)

    def build(on: On) -> Built:
        fetches, feeds = {}, {}
        for size, times in LOOPED.items():
            fed, value = fed_on(on, PS, tf.int64, [size])
            feeds[fed] = np.arange(size)
            fetches[f"v2, {size}"] = loop(on, value, times, step)
            tf.compat.v1.disable_control_flow_v2()
            try:
                fetches[f"v1, {size}"] = loop(on, value, times, step)
                fetches[f"nested, {size}"] = loop(on, value, 4, nested)
            finally:
                tf.compat.v1.enable_control_flow_v2()
        return fetches, feeds

    check(cluster, build, [(PS, WORKER), (WORKER, PS)], tensors=6)


# --- concurrent steps -----------------------------------------------------------------------------

CLIENTS, STEPS = 4, 5
CONCURRENT = {1025: 8 * 1025, LARGE // 8 + 1: LARGE + 8}  # elements: bytes


@recv(
    "concurrent steps",
    "four clients in one session and four sessions, each step with values of its own, both ways",
    Payload(small=8 * 1025, large=LARGE + 8) * (2 * 2 * CLIENTS * STEPS),
)
def concurrent_steps(cluster: Cluster) -> None:
    def build() -> tuple[Any, Any]:
        fed = tf.compat.v1.placeholder(tf.int64, [])
        ranges = []
        for source, sink in ((PS, WORKER), (WORKER, PS)):
            for size in CONCURRENT:
                with tf.device(task_device(source)):
                    sent = tf.fill([size], fed * 3)
                with tf.device(task_device(sink)):
                    ranges += [tf.reduce_min(sent), tf.reduce_max(sent)]
        return fed, ranges

    def steps(session: Any, fed: Any, ranges: Any, client: int) -> None:
        for step in range(STEPS):
            number = client * STEPS + step
            assert session.run(ranges, {fed: number}) == [3 * number] * len(ranges)

    def client_of_its_own(client: int) -> None:
        with session_on(cluster) as session:
            steps(session, *build(), client)

    with ThreadPoolExecutor(CLIENTS) as clients:
        with session_on(cluster) as session:
            built = build()
            list(clients.map(partial(steps, session, *built), range(CLIENTS)))
        list(clients.map(client_of_its_own, range(CLIENTS)))


# --- either side first ----------------------------------------------------------------------------

HOPS = [1025, LARGE + 1]
ONE_HOP_EACH = Payload(small=HOPS[0], large=HOPS[1])


def _on(task: str) -> Any:
    return tf.device(task_device(task))


def _hop(cluster: Cluster, size: int, first: str) -> None:
    """`size` bytes go from ps to worker, and the side that is not `first` starts after a signal."""
    array = (np.arange(size) * 7).astype(np.uint8)
    with session_on(cluster) as session:
        fed, value = fed_on(_on, PS, tf.uint8)
        go = Signal(WORKER if first == PS else PS, f"go, {first} first, {size}")
        later = {"receive_after" if first == PS else "send_after": [go.waited]}
        send, received = explicit_hop(_on, value, PS, WORKER, **later)
        sent = Signal(PS, f"sent, {first} first, {size}")
        fetches = [received, sent.given_after(send)]
        values: list[Any] = []
        step = threading.Thread(target=lambda: values.append(session.run(fetches, {fed: array})))
        step.start()
        if first == PS:
            session.run(sent.waited)
        time.sleep(0.2)  # time for the receiver's request, of which nothing tells
        assert step.is_alive()
        session.run(go.given)
        step.join(PROMPT)
        assert values, "the step did not end"
        assert not difference(values[0][0], array)


@recv("sender first", "the tensor lies ready before the receiver asks for it", ONE_HOP_EACH)
def sender_first(cluster: Cluster) -> None:
    for size in HOPS:
        _hop(cluster, size, first=PS)


@recv("receiver first", "the receiver asks before there is a tensor", ONE_HOP_EACH)
def receiver_first(cluster: Cluster) -> None:
    for size in HOPS:
        _hop(cluster, size, first=WORKER)


# --- steps that end early -------------------------------------------------------------------------


#: Of the tensor that goes from the ps to a worker again and again, and of all that have gone at the
#: least when the step ends.
ENDLESS_MIB, GONE_MIB = 32, 96
TRANSFERRING = Payload(large=GONE_MIB * 2**20)
ENDLESS_S = 600.0  # so that it is not its own deadline that ends it


def _transferring(cluster: Cluster, step: Callable[[], Any]) -> Loop:
    """What runs an endless_transfer(), once it transfers by the path's own counters."""
    before = read(cluster)

    def gone() -> bool:
        grown = carried(read(cluster), before)
        return sum(grown[name] for name in COUNTERS) >= TRANSFERRING.bytes

    loop = Loop(step)
    told = eventually(lambda: gone() or loop.error is not None, 2 * PROMPT, every=0.2)
    assert told and loop.error is None, repr(loop.error)
    return loop


@recv(
    "cancel",
    "a session is closed while a step waits, and while one transfers: it ends, another session's "
    "steps do not notice, the next one works",
    TRANSFERRING + WORKS,
)
def cancel(cluster: Cluster) -> None:
    with session_on(cluster) as session:
        loop = blocked(session)
        assert loop.is_alive()
        session.close()
        assert cancelled_by_close(loop.outcome()), repr(loop.error)
    with session_on(cluster) as other:
        others_step = partial(other.run, long_transfer(PS, WORKER, 1))
        with session_on(cluster, ENDLESS_S) as session:
            step = endless_transfer(PS, WORKER, ENDLESS_MIB)
            loop = _transferring(cluster, partial(session.run, step))
            with undisturbed(others_step, PROMPT):
                session.close()
                assert cancelled_by_close(loop.outcome()), repr(loop.error)
    assert_works(cluster)


@recv(
    "abort",
    "the sender's own error ends the step while the receiver takes in its tensors and waits for "
    "more; another session's steps do not notice",
    TRANSFERRING + WORKS,
)
def abort(cluster: Cluster) -> None:
    with session_on(cluster) as other:
        others_step = partial(other.run, long_transfer(PS, OTHER, 1))
        with session_on(cluster, ENDLESS_S) as session:
            fails = Signal(PS, "fail")
            with tf.device(task_device(PS)), tf.control_dependencies([fails.waited]):
                picked = tf.gather(tf.range(5), tf.identity(tf.constant(99)))
            with tf.device(task_device(OTHER)):
                more = picked + 1
            endless = endless_transfer(PS, OTHER, ENDLESS_MIB)
            step = partial(session.run, [more, endless, blocked_step()])
            loop = _transferring(cluster, step)
            with undisturbed(others_step, PROMPT):
                session.run(fails.given)
                error = loop.outcome()
                assert isinstance(error, tf.errors.InvalidArgumentError), repr(error)
                assert "is not in" in str(error)
    assert_works(cluster)
