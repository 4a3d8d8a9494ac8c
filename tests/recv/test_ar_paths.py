"""`grpc+ar` moves each tensor the way it should: values bit for bit, and the counters of both ends.

A test that names a fabric allows only that one.
"""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from common import graphs
from common.ar import (
    ARENA_SMALLEST,
    Moved,
    arena_bytes,
    descriptors,
    eventually,
    moved,
    offers,
    page_faults,
    path_of,
    resident,
    settle,
    shared_memory,
    thresholds,
    wait_no_offers,
    ways_outside_arena,
)
from common.fixtures import ClusterFactory
from common.growth import heap, most, per_step, sampled
from common.instrumented import INSTRUMENTED
from common.processes import Cluster, own_address, run_program
from common.protocols import AR
from common.sessions import (
    On,
    cancelled_by_close,
    check,
    config,
    deadline_within,
    difference,
    refused_after_close,
    task_device,
)
from common.virtual_host import SLOWER

pytestmark = pytest.mark.timeout(120)

PS, WORKER = "ps:0", "worker:0"
KIB, MIB, GIB = 2**10, 2**20, 2**30
PROGRAMS = Path(__file__).with_name("programs")
#: Fabrics by which the receiver reads tensors out of the sender's memory itself.
ONE_SIDED = ("shm", "verbs")
VERBS = pytest.param(
    "verbs",
    marks=[pytest.mark.virtual_host("rxe"), pytest.mark.slow, pytest.mark.timeout(120 * SLOWER)],
)
over = pytest.mark.parametrize("fabric", ["shm", "tcp", VERBS], scope="session")
over_shm = pytest.mark.parametrize("fabric", ["shm"], scope="session")
over_one_sided = pytest.mark.parametrize("fabric", ["shm", VERBS], scope="session")
both_ways = pytest.mark.parametrize(
    "way",
    [
        pytest.param((PS, WORKER), id="ps-to-worker"),
        pytest.param((WORKER, PS), id="worker-to-ps"),
    ],
)


@contextmanager
def session_on(cluster: Cluster, master: str = WORKER, seconds: float = 60) -> Iterator[Any]:
    """A session, and for the test a graph to build in."""
    with (
        tf.Graph().as_default(),
        tf.compat.v1.Session(cluster.target(master), config=config(seconds)) as session,
    ):
        yield session


def pattern(size: int, seed: int) -> Any:
    """`size` bytes of which each depends on all of its offset."""
    index = np.arange(size, dtype=np.int32)
    return ((index ^ (index >> 8) ^ (index >> 16)) + seed).astype(np.uint8)


def made_pattern(size: Any, seed: Any) -> Any:
    """The same, by operations; its buffer has `size` bytes and no more."""
    index = tf.range(size)
    mixed = tf.bitwise.bitwise_xor(index, tf.bitwise.right_shift(index, 8))
    mixed = tf.bitwise.bitwise_xor(mixed, tf.bitwise.right_shift(index, 16))
    return tf.cast(tf.bitwise.bitwise_and(mixed + seed, 255), tf.uint8)


class Sender:
    """Steps that each bring one pattern from `way[0]` to `way[1]`, the session's master."""

    def __init__(self, way: tuple[str, str], session: Any) -> None:
        self._session = session
        with tf.device(task_device(way[0])):
            self._size = tf.compat.v1.placeholder(tf.int32, [])
            self._seed = tf.compat.v1.placeholder(tf.int32, [])
            sent = made_pattern(self._size, self._seed)
        with tf.device(task_device(way[1])):
            self._got = tf.identity(sent)

    def check(self, size: int, seed: int) -> None:
        got = self._session.run(self._got, {self._size: size, self._seed: seed})
        why = difference(got, pattern(size, seed))
        assert not why, f"{size} bytes: {why}"


def expected(
    cluster: Cluster, fabric: str, sender: str, size: int
) -> list[tuple[dict[str, int], dict[str, int]]]:
    """What receiver and sender may count for one tensor that an operation made."""
    in_stream, by_rendezvous = (moved(), moved()), (moved(1, size), moved())
    if fabric not in ONE_SIDED:
        return [in_stream]
    if size < ARENA_SMALLEST:
        return ways_outside_arena(cluster[sender].status(), size)
    (_, _, first), (low, high, protocol) = thresholds(cluster[sender].status())
    assert (first, protocol) == ("eager", "rendezvous")
    return ([by_rendezvous] if size >= low else []) + ([in_stream] if size < high else [])


def assert_counted(
    cluster: Cluster,
    fabric: str,
    way: tuple[str, str],
    transfer: Callable[[], None],
    allowed: Sequence[tuple[dict[str, int], dict[str, int]]],
) -> None:
    """A transfer, after which receiver and sender have counted one pair of `allowed`.

    Verbs registers memory in a thread of its own while it is first used, and nobody waits for it:
    until then the tensor goes through the stream, or its receiver fetches it by calls.
    """
    for left in reversed(range(20 if fabric == "verbs" else 1)):
        received, sent = Moved(cluster, way[1]), Moved(cluster, way[0])
        transfer()
        counts = received(), sent()
        if counts in allowed:
            return
        assert left, f"{counts}, not one of {allowed}"
        assert counts[0]["rendezvous"] == 0, f"{counts}, not one of {allowed}"
        time.sleep(0.2)


# --- sizes ----------------------------------------------------------------------------------------

#: Where something changes: arena, block of a gRPC read, ring, part of a copy, chunk.
EDGES = [ARENA_SMALLEST, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 8 * MIB, 16 * MIB]
SIZES = [1, *(edge + off for edge in EDGES for off in (-1, 0, 1))]


@over
@both_ways
def test_sizes(pair: Cluster, fabric: str, way: tuple[str, str]) -> None:
    """Each twice: a buffer that is used again must not show old bytes."""
    with session_on(pair, master=way[1]) as session:
        sender = Sender(way, session)
        for size in SIZES:
            allowed = expected(pair, fabric, way[0], size)
            for seed in (size % 97, 130):
                transfer = partial(sender.check, size, seed)
                assert_counted(pair, fabric, way, transfer, allowed)
    assert path_of(pair, way[1], way[0]) == fabric
    wait_no_offers(pair, PS, WORKER)


@over_one_sided
def test_size_where_rendezvous_begins(pair: Cluster) -> None:
    """The table's own row, which differs from start to start, found by the counters."""
    with session_on(pair) as session:
        sender = Sender((PS, WORKER), session)

        def by_rendezvous(size: int) -> bool:
            received = Moved(pair, WORKER)
            sender.check(size, size % 251)
            counts = received()
            assert counts in (moved(), moved(1, size))
            return counts == moved(1, size)

        low, high, protocol = thresholds(pair[PS].status())[1]
        assert protocol == "rendezvous"
        low, high = max(low, ARENA_SMALLEST) - 1, max(high, ARENA_SMALLEST)
        assert not by_rendezvous(low)
        assert by_rendezvous(high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if by_rendezvous(middle) else (middle, high)
        assert [by_rendezvous(high + off) for off in (-2, -1, 0, 1)] == [False, False, True, True]


# --- copies ---------------------------------------------------------------------------------------


def variable_on(task: str, size: int, name: str = "v") -> Any:
    with tf.device(task_device(task)):
        return tf.compat.v1.get_variable(
            name, initializer=lambda: made_pattern(size, 5), use_resource=True
        )


@over
def test_variable_is_copied_once(pair: Cluster, fabric: str) -> None:
    """16 MiB of a variable: one rendezvous of just these bytes, and next to nothing beside it."""
    size = 16 * MIB
    with session_on(pair) as session:
        variable = variable_on(PS, size)
        with tf.device(task_device(WORKER)):
            got = tf.identity(variable.read_value())
            low, high = tf.reduce_min(got), tf.reduce_max(got)
        session.run(variable.initializer)
        for fetches, wanted in ((got, pattern(size, 5)), (tf.stack([low, high]), [0, 255])):
            before: dict[str, Any] = {}

            def read(fetches: Any = fetches, wanted: Any = wanted) -> None:
                nonlocal before
                before = pair[WORKER].status()
                assert not difference(session.run(fetches), np.asarray(wanted, np.uint8))

            way = moved(1, size) if fabric in ONE_SIDED else moved()
            assert_counted(pair, fabric, (PS, WORKER), read, [(way, moved())])
            streamed = pair[WORKER].status()["stream_bytes_received"]
            assert streamed - before["stream_bytes_received"] < 256 * KIB
    assert path_of(pair, WORKER, PS) == fabric
    wait_no_offers(pair, PS, WORKER)


@over
def test_memory_outside_the_arena_is_staged(pair: Cluster, fabric: str, tmp_path: Path) -> None:
    """A tensor that is a mapped file: one copy into the arena, then the receiver's own."""
    size = 16 * MIB + 3
    wanted = pattern(size, 9)
    wanted.tofile(tmp_path / "constant")
    with session_on(pair) as session:
        with tf.device(task_device(PS)):
            sent = tf.raw_ops.ImmutableConst(
                dtype=tf.uint8, shape=[size], memory_region_name=str(tmp_path / "constant")
            )
        with tf.device(task_device(WORKER)):
            got = tf.identity(sent)

        def receive() -> None:
            assert not difference(session.run(got), wanted)

        ways = [(moved(), moved())]
        if fabric in ONE_SIDED:
            ways = ways_outside_arena(pair[PS].status(), size)
        assert_counted(pair, fabric, (PS, WORKER), receive, ways)
    wait_no_offers(pair, PS)


@over
@pytest.mark.parametrize("size", [3, 1025, 64 * KIB + 1, 8 * MIB + 1])
def test_fed_array(pair: Cluster, fabric: str, size: int) -> None:
    """What a client feeds goes on by the same rules as what an operation made."""
    with session_on(pair) as session:
        with tf.device(task_device(PS)):
            fed = tf.compat.v1.placeholder(tf.uint8, [None])
            sent = tf.identity(fed)
        with tf.device(task_device(WORKER)):
            got = tf.identity(sent)

        def feed() -> None:
            assert not difference(session.run(got, {fed: pattern(size, 77)}), pattern(size, 77))

        # The other way with the step, or by a transfer of its own.
        ways_there = [moved(), moved(1, size)]
        ways_back = [received for received, _ in expected(pair, fabric, PS, size)]
        allowed = [(back, there) for back in ways_back for there in ways_there]
        assert_counted(pair, fabric, (PS, WORKER), feed, allowed)
    wait_no_offers(pair, PS)


def test_little_or_no_arena(new_ar_cluster: ClusterFactory) -> None:
    """What lies in no arena goes through shared memory's stream, what fits by rendezvous."""
    envs = {PS: {"AR_GRPC_ARENA": "0"}, "ps:1": {"AR_GRPC_ARENA_SIZE": "24M"}}
    cluster = new_ar_cluster({"AR_GRPC_FABRICS": "shm"}, envs=envs, ps=2, worker=1)
    # 16 KiB of an arena go the way that was measured to be faster; elsewhere there is one.
    none, little = (
        ([1, 16 * KIB, 32 * MIB + 1], MIB + 1, moved()),
        ([1, 32 * MIB + 1], MIB, moved(1, MIB)),
    )
    for task, (streams, smaller, by_rendezvous) in {PS: none, "ps:1": little}.items():
        with session_on(cluster) as session:
            sender = Sender((task, WORKER), session)
            streamed = cluster[WORKER].status()["stream_bytes_received"]
            received, sent = Moved(cluster, WORKER), Moved(cluster, task)
            for size in streams:
                sender.check(size, 3)
            assert received() == sent() == moved()
            sender.check(smaller, 4)
            assert (received(), sent()) == (by_rendezvous, moved())
            streamed = cluster[WORKER].status()["stream_bytes_received"] - streamed
            assert streamed > 32 * MIB
        assert path_of(cluster, WORKER, task) == "shm"
        wait_no_offers(cluster, task, WORKER)
    assert "arena" not in cluster[PS].status()
    assert cluster["ps:1"].status()["arena"]["size"] == 24 * MIB


# --- many and mixed -------------------------------------------------------------------------------


@over
@both_ways
def test_many_and_mixed(pair: Cluster, fabric: str, way: tuple[str, str]) -> None:
    """100 tensors a step: empty, odd, strings, lists and, among them, large ones."""
    large = 0

    def build(on: On) -> tuple[dict[str, Any], dict[Any, Any]]:
        nonlocal large
        with on(way[0]):
            seed_fed = tf.compat.v1.placeholder(tf.int32, [])
            seed = tf.identity(seed_fed)
        fetches, large = {}, 0
        for i in range(100):
            with on(way[0]):
                if i % 20 == 0:  # one that is large for sure
                    sent, large = made_pattern(2 * MIB + i, seed + i), large + 1
                elif i % 20 == 7:
                    sent = tf.strings.join([tf.as_string(tf.range(100) + seed), "\0" * i])
                elif i % 20 == 13:
                    sent = tf.raw_ops.TensorListFromTensor(
                        tensor=tf.fill([2, 50000], seed + i), element_shape=[-1]
                    )
                else:
                    sent = made_pattern((i * i * 37) % 9973 if i % 3 else 0, seed + i)
            with on(way[1]):
                got = tf.identity(sent)
                if got.dtype == tf.variant:
                    got = tf.raw_ops.TensorListStack(
                        input_handle=got, element_shape=[-1], element_dtype=tf.int32
                    )
                elif i % 20 == 0:
                    got = tf.concat([got[:4097], got[-4097:]], 0)
                fetches[f"tensor {i}"] = got
        return fetches, {seed_fed: 11}

    received = Moved(pair, way[1])
    check(pair, build, [way], tensors=100, steps=3)
    counts = received()
    if fabric in ONE_SIDED:
        sizes = [2 * MIB + i for i in range(0, 100, 20)]
        assert counts["rendezvous"] >= 3 * large
        assert counts["rendezvous_bytes"] >= 3 * sum(sizes)
    else:
        assert counts == moved()
    assert counts["staged_bytes"] == counts["chunk_bytes"] == 0
    wait_no_offers(pair, PS, WORKER)


@over_one_sided
def test_dead_tensors_among_large_ones(pair: Cluster) -> None:
    """The untaken branch's tensor is dead and offers nothing; the other one is offered."""
    size = 2 * MIB + 1
    with session_on(pair) as session:
        with tf.device(task_device(PS)):
            pred = tf.compat.v1.placeholder(tf.bool, [])
            dead_if_true, dead_if_false = tf.raw_ops.Switch(data=made_pattern(size, 1), pred=pred)
        with tf.device(task_device(WORKER)):
            flipped = tf.bitwise.invert(tf.identity(dead_if_true))
            merged = tf.raw_ops.Merge(inputs=[flipped, tf.identity(dead_if_false)]).output
        for taken in (True, False, True, False):
            received = Moved(pair, WORKER)
            wanted = pattern(size, 1) if taken else ~pattern(size, 1)
            assert not difference(session.run(merged, {pred: taken}), wanted)
            assert received() == moved(1, size)
    wait_no_offers(pair, PS)


@over_one_sided
def test_both_directions_at_once(pair: Cluster) -> None:
    """Four clients, each with large tensors both ways, keep them apart."""
    failures: list[BaseException] = []
    size = 3 * MIB + 1

    def client(number: int) -> None:
        try:
            with session_on(pair) as session:
                fetches = []
                for source, sink in ((PS, WORKER), (WORKER, PS)):
                    with tf.device(task_device(source)):
                        sent = made_pattern(size, number)
                    with tf.device(task_device(sink)):
                        fetches.append(tf.identity(sent)[-5000:])
                for _ in range(10):
                    for value in session.run(fetches):
                        assert not difference(value, pattern(size, number)[-5000:])
        except BaseException as error:
            failures.append(error)

    ends = Moved(pair, PS), Moved(pair, WORKER)
    threads = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert [end() for end in ends] == [moved(40, 40 * size)] * 2
    wait_no_offers(pair, PS, WORKER)


# --- what is offered is let go --------------------------------------------------------------------


def long_transfer(count: int = 16) -> Any:
    """One step in which `count` tensors of 16 MiB go from the ps to the worker."""
    sums = []
    for i in range(count):
        with tf.device(task_device(PS)):
            sent = tf.fill([2**21], tf.random.uniform([], dtype=tf.float64, seed=i))
        with tf.device(task_device(WORKER)):
            sums.append(sent[0] - sent[-1])
    with tf.device(task_device(WORKER)):
        return tf.add_n(sums)


@over
def test_cancelled_steps_leave_no_offer(pair: Cluster, fabric: str) -> None:
    """Deadlines at several moments of a step; the next steps get the right values."""
    missed = 0
    for part in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1):
        with session_on(pair) as session:
            step = long_transfer()
            options = deadline_within(part, partial(session.run, step))
            try:
                assert session.run(step, options=options) == 0.0
            except tf.errors.DeadlineExceededError:
                missed += 1
        wait_no_offers(pair, PS, WORKER)
    assert missed >= 2
    with session_on(pair) as session:
        Sender((PS, WORKER), session).check(4 * MIB, 8)
    assert path_of(pair, WORKER, PS) == fabric
    wait_no_offers(pair, PS, WORKER)


@over
def test_closed_session_leaves_no_offer(pair: Cluster, fabric: str) -> None:
    del fabric
    ends: list[Exception] = []

    def steps(run: Callable[[], Any]) -> None:
        try:
            while True:
                assert run() == 0.0
        except Exception as error:
            ends.append(error)

    for delay in (0.0, 0.02, 0.05, 0.1):
        with session_on(pair) as session:
            step = long_transfer()
            assert session.run(step) == 0.0
            thread = threading.Thread(target=steps, args=(partial(session.run, step),))
            thread.start()
            time.sleep(delay)
            session.close()
            thread.join(30)
            assert not thread.is_alive()
        wait_no_offers(pair, PS, WORKER)
    assert len(ends) == 4, ends
    assert all(cancelled_by_close(end) or refused_after_close(end) for end in ends), ends
    with session_on(pair) as session:
        Sender((PS, WORKER), session).check(4 * MIB, 8)


# --- over 2 GiB -----------------------------------------------------------------------------------

HUGE = 5 * GIB // 2 + 8
huge_transfer = partial(graphs.huge_transfer, PS, WORKER, HUGE)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("fabric", ["shm", "tcp"])
def test_huge(new_ar_cluster: ClusterFactory, fabric: str) -> None:
    """2.5 GiB: by rendezvous over shared memory, chunk by chunk over TCP."""
    cluster = new_ar_cluster({"AR_GRPC_FABRICS": fabric}, ps=1, worker=1)
    with session_on(cluster, seconds=200) as session:
        received, sent = Moved(cluster, WORKER), Moved(cluster, PS)
        there, here = session.run(huge_transfer())
        assert here.size == 1024 + 320 + 9
        assert not difference(here, there)
        assert received() == (moved(1, HUGE) if fabric == "shm" else moved(chunks=HUGE))
        assert sent() == moved()
    wait_no_offers(cluster, PS, WORKER)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_huge_is_cancelled_while_its_sender_stands_still(new_ar_cluster: ClusterFactory) -> None:
    """The call that named the tensor is over by then: the calls for its chunks are cancelled."""
    cluster = new_ar_cluster({"AR_GRPC_FABRICS": "tcp"}, ps=1, worker=1)
    with session_on(cluster, seconds=200) as session:
        step, received = huge_transfer(), Moved(cluster, WORKER)
        began = time.monotonic()
        session.run(step)
        options = tf.compat.v1.RunOptions(timeout_in_ms=int(2000 * (time.monotonic() - began)))

        def stop() -> None:
            assert eventually(lambda: offers(cluster, PS), 60, every=0.001)
            time.sleep(0.1)
            cluster[PS].stand_still()

        stopping = threading.Thread(target=stop)
        stopping.start()
        try:
            with pytest.raises(tf.errors.DeadlineExceededError):
                session.run(step, options=options)
            time.sleep(1)  # the master tells the worker
        finally:
            stopping.join()
            cluster[PS].signal(signal.SIGCONT)
        wait_no_offers(cluster, PS, WORKER)
        assert received() == moved(chunks=HUGE), "the second one was fetched to its end"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_huge_to_a_stock_peer(new_ar_cluster: ClusterFactory) -> None:
    """An error of the step that names the size; both processes live and go on."""
    cluster = new_ar_cluster(protocols={WORKER: "grpc"}, ps=1, worker=1)
    with session_on(cluster, seconds=200) as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"\b{HUGE} bytes"):
            session.run(huge_transfer())
        Sender((PS, WORKER), session).check(4097, 8)
    assert not cluster.dead()


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fabric", "steps"),
    [
        *((fabric, 6000) for fabric in ("shm", "tcp")),
        *(
            pytest.param(fabric, 100000, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])
            for fabric in ("shm", "tcp")
        ),
        # It would take hours there.
        pytest.param("verbs", 1000, marks=VERBS.marks),
    ],
    scope="session",
)
def test_steps_leave_nothing(pair: Cluster, fabric: str, steps: int) -> None:
    """Neither the heap nor other memory nor descriptors grow with the steps."""
    size = 200 * KIB + 3  # by rendezvous over shm
    looks = {"resident": resident, "descriptors": descriptors, "shared": shared_memory}
    # From the first window's start to the last one's end.
    slack = {"descriptors": 2, "shared": 4 * MIB}

    def look() -> dict[tuple[str, str], int]:
        wait_no_offers(pair, PS, WORKER)
        # First: it gives back to the system what malloc keeps of freed memory.
        used = {(task, "heap"): heap(pair, task) for task in (PS, WORKER)}
        for task in (PS, WORKER):
            used |= {(task, what): of(pair[task].pid) for what, of in looks.items()}
        return used

    with session_on(pair, seconds=1000) as session:
        with tf.device(task_device(PS)):
            fed = tf.compat.v1.placeholder(tf.int64, [])
            small = fed * 3
            large = tf.fill([size], tf.cast(fed % 251, tf.uint8))
        with tf.device(task_device(WORKER)):
            got = tf.stack([small, tf.reduce_sum(tf.cast(large, tf.int64))])
        step_of = session.make_callable(got, [fed])
        numbers = iter(range(steps))

        def run(count: int) -> None:
            for step in itertools.islice(numbers, count):
                assert step_of(step).tolist() == [step * 3, step % 251 * size], f"step {step}"

        received = Moved(pair, WORKER)
        samples = sampled(steps, run, look)
        assert received() == (moved(steps, steps * size) if fabric in ONE_SIDED else moved())
    leaked = per_step(samples, steps)
    grown = {key: samples[-1][key] - samples[0][key] for key in samples[0]}
    print(leaked, grown)
    assert all(leaked[task, "heap"] <= most(steps) for task in (PS, WORKER)), leaked
    assert all(by <= slack[what] for (_, what), by in grown.items() if what in slack), grown
    if not INSTRUMENTED:
        # By the median window: malloc_trim leaves the end of a thread's arena, so that more tensors
        # at once than ever before keep some MB resident, once.
        resident_by = {task: leaked[task, "resident"] * steps / 2 for task in (PS, WORKER)}
        assert all(by <= 4 * MIB for by in resident_by.values()), resident_by


@over
def test_a_step_finds_its_memory_warm(pair: Cluster, fabric: str) -> None:
    """Neither end faults the pages of a large tensor in again, whichever way it travels."""
    size, steps = 64 * MIB, 5
    with session_on(pair) as session:
        with tf.device(task_device(PS)):
            fed = tf.compat.v1.placeholder(tf.uint8, [])
            sent = tf.fill([size], fed)
        with tf.device(task_device(WORKER)):
            got = tf.strided_slice(sent, [size - 2], [size])

        def run(numbers: range) -> None:
            for number in numbers:
                assert session.run(got, {fed: number}).tolist() == [number] * 2

        run(range(3))
        before = {task: page_faults(pair[task].pid) for task in (PS, WORKER)}
        run(range(3, 3 + steps))
        faults = {task: page_faults(pair[task].pid) - before[task] for task in (PS, WORKER)}
    # 4 KiB each, the system's smallest.
    assert max(faults.values()) < steps * size // (4 * KIB) / 10, faults
    wait_no_offers(pair, PS, WORKER)


@pytest.mark.slow
@pytest.mark.parametrize("fabric", ["shm", "tcp"], scope="session")
def test_freed_memory_is_returned(pair: Cluster) -> None:
    """512 MiB of a variable that is gone are soon the system's again, at both ends."""
    size, slack = 512 * MIB, 32 * MIB
    before = {task: pair[task].status()["arena"]["in_use"] for task in (PS, WORKER)}
    with session_on(pair) as session:
        value = tf.constant(1.5, tf.float64)
        with tf.device(task_device(PS)):
            variable = tf.compat.v1.get_variable(
                "huge", initializer=lambda: tf.fill([size // 8], value), use_resource=True
            )
            destroy = tf.raw_ops.DestroyResourceOp(resource=variable.handle)
        with tf.device(task_device(WORKER)):
            total = tf.reduce_sum(variable.read_value())
        session.run(variable.initializer)
        assert session.run(total) == size // 8 * 1.5
        assert pair[PS].status()["arena"]["in_use"] >= before[PS] + size
        assert shared_memory(pair[PS].pid) >= size
        session.run(destroy)
    for task in (PS, WORKER):
        settle(before[task] + slack, arena_bytes, pair, task, seconds=40)
        assert pair[task].status()["arena"]["peak_in_use"] >= size
    # Over shm the worker has the ps's pages mapped, and those are gone as well.
    for task in (PS, WORKER):
        settle(sum(before.values()) + 2 * slack, shared_memory, pair[task].pid)


@pytest.mark.timeout(300)
def test_forked_child_writes_only_its_own(tmp_path: Path) -> None:
    """multiprocessing's fork, in a process whose tensors lie in the arena and are being read."""
    env = {"AR_GRPC_FABRICS": "shm"}
    settings = {
        "cluster": {job: [own_address()] for job in ("ps", "worker")},
        "protocol": AR,
        "log": str(tmp_path / "worker.stderr"),
        "env": env,
        "forks": 3,
    }
    result = run_program(PROGRAMS / "fork.py", settings, 280, env).result()
    assert result["in_arena"] >= 4 * MIB
    child = {"saw": [7, 7], "wrote": [99, 99], "arena": False, "status": 0}
    assert result["children"] == [child] * 3
    assert (result["after"], result["doubled"]) == ([7, 7], [14, 14])
    assert not result["wrong"]
    before, after = result["steps"]
    assert 0 < before < after
    assert result["received"] == after * 4 * MIB
