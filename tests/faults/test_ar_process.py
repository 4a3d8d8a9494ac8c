"""`grpc+ar` in processes that lack something, or have it twice: values are right all the same."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import tensorflow as tf

from common.ar import Moved, moved, path_of, wait_no_offers, ways_outside_arena
from common.fixtures import ClusterFactory
from common.groups import memory_group
from common.pair import MIB, PS, WORKER, assert_works, large_step, session_at
from common.processes import Program, own_address, run_program
from common.protocols import AR
from common.sessions import task_device

pytestmark = pytest.mark.timeout(180)

PROGRAMS = Path(__file__).with_name("programs")
GIB = 2**30


# --- another allocator ----------------------------------------------------------------------------


def test_sender_without_the_arena(new_ar_cluster: ClusterFactory) -> None:
    """TensorFlow's own pool has its tensors outside of what peers may read: they are staged."""
    size = 16 * MIB
    cluster = new_ar_cluster(envs={PS: {"TF_CPU_ALLOCATOR_USE_BFC": "1"}}, ps=1, worker=1)
    with session_at(cluster.target()) as session:
        with tf.device(task_device(PS)):
            variable = tf.compat.v1.get_variable(
                "large", [size // 8], tf.float64, tf.compat.v1.random_uniform_initializer()
            )
            value = variable.read_value()
            bits_there = tf.reduce_sum(tf.bitcast(value, tf.int64))
        with tf.device(task_device(WORKER)):
            bits_here = tf.reduce_sum(tf.bitcast(value, tf.int64))
        session.run(variable.initializer)
        for _ in range(3):
            sent, received = Moved(cluster, PS), Moved(cluster, WORKER)
            there, here = session.run([bits_there, bits_here])
            assert here == there != 0
            assert (received(), sent()) in ways_outside_arena(cluster[PS].status(), size)
    assert path_of(cluster, WORKER, PS) == "shm"
    wait_no_offers(cluster, PS, WORKER)


# --- no room to map the peer's memory -------------------------------------------------------------


@contextmanager
def address_space(pid: int, more: int) -> Iterator[None]:
    """Another process may map so many bytes more than it has."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmSize:\s+(\d+) kB", status)
    assert found, status
    before = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (int(found[1]) * 1024 + more, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_AS, before)


def test_receiver_without_room_for_the_arena(new_ar_cluster: ClusterFactory) -> None:
    """The stream is shared memory still; what cannot be read out of the peer comes in chunks."""
    envs = {PS: {"AR_GRPC_ARENA_SIZE": "64G"}, WORKER: {"AR_GRPC_ARENA_SIZE": "1G"}}
    cluster = new_ar_cluster(envs=envs, ps=1, worker=1)
    size = 16
    with address_space(cluster[WORKER].pid, 8 * GIB):
        for _ in range(2):
            with session_at(cluster.target(WORKER)) as session:
                step = large_step((PS, WORKER), size)
                stream = cluster[WORKER].status()["stream_bytes_received"]
                received = Moved(cluster, WORKER)
                assert session.run(step) == 0.0
                assert received() == moved(chunks=size * MIB)
                now = cluster[WORKER].status()
                assert now["stream_bytes_received"] - stream >= size * MIB
                assert path_of(cluster, WORKER, PS) == "shm"
        # The other way nothing lacks.
        with session_at(cluster.target(PS)) as session:
            step = large_step((WORKER, PS), size)
            received = Moved(cluster, PS)
            assert session.run(step) == 0.0
            assert received() == moved(rendezvous=1, size=size * MIB)
        assert path_of(cluster, PS, WORKER) == "shm"
        wait_no_offers(cluster, PS, WORKER)
    # A restarted peer is a new connection, whose memory is mapped again.
    cluster.restart(PS)
    assert_works(cluster, "shm")


@pytest.mark.parametrize("fabrics", ["", "tcp"], ids=["all", "tcp"])
def test_no_arena_whose_pages_may_be_refused(fabrics: str) -> None:
    """A refused page would end the process, where malloc's refusal ends a step."""
    settings = {"address": own_address(), "protocol": AR}
    outcome = run_program(PROGRAMS / "strict_memory.py", settings, env={"AR_GRPC_FABRICS": fabrics})
    assert outcome.result() == {"arena": None, "last": 7}
    why = [line for line in outcome.stderr.splitlines() if "vm.overcommit_memory is 2" in line]
    assert len(why) == 1, outcome.stderr
    assert ("no shared memory" if not fabrics else "No tensor arena") in why[0]


# --- more than there is ---------------------------------------------------------------------------


def test_warm_memory_makes_room_in_a_container() -> None:
    """What was freed lately is kept for the next step, but not beside what that needs."""
    with memory_group(3 * GIB) as group:
        mib = [700, 1600, 1650]
        settings = {"address": own_address(), "protocol": AR, "group": str(group), "mib": mib}
        result = run_program(PROGRAMS / "growing_tensors.py", settings).result()
    assert result["seen"] == [0, 1, 2]
    assert result["held"] == (mib[-1] + len(mib)) * MIB  # warm as ever, and what is between them


def test_receiver_without_room_for_the_tensor(new_ar_cluster: ClusterFactory) -> None:
    """The step's error says what was too large; nothing is written where no tensor is."""
    cluster = new_ar_cluster(envs={WORKER: {"AR_GRPC_ARENA_SIZE": "256M"}}, ps=1, worker=1)
    size = 5 * GIB // 4
    assert_works(cluster, "shm")  # the sender's memory is mapped: what lacks is a tensor
    with session_at(cluster.target(WORKER)) as session:
        step = large_step((PS, WORKER), size // MIB)
        with (
            address_space(cluster[WORKER].pid, GIB),
            pytest.raises(tf.errors.ResourceExhaustedError) as raised,
        ):
            session.run(step)
        text = str(raised.value)
        assert "OOM when allocating the tensor that /job:ps/replica:0/task:0 sends" in text
        assert f"shape [{size // 8}] of double, {size} bytes" in text
    wait_no_offers(cluster, PS, WORKER)
    assert_works(cluster, "shm")


def test_an_arena_gives_no_more_than_the_machine_has(new_ar_cluster: ClusterFactory) -> None:
    """The arena is twice the machine's memory, and who touched all of it would be killed. So it
    ends where that memory does, and malloc is asked for more."""
    # As the suite has it, malloc would write to all that it gives out.
    untouched = {"GLIBC_TUNABLES": "glibc.malloc.perturb=0"}
    cluster = new_ar_cluster(envs={PS: untouched}, ps=1, worker=1)
    size = cluster[PS].status()["arena"]["size"]
    rows = size // 5 // MIB
    with session_at(cluster.target(PS)) as session:
        with tf.device(task_device(PS)):
            # Nothing is written to these.
            parts = [
                tf.raw_ops.Empty(shape=[rows, MIB // 8], dtype=tf.float64, init=False)
                for _ in range(3)
            ]
            with tf.control_dependencies(parts):
                ends = tf.stack([each[-1, -1] for each in parts])
        with suppress(tf.errors.ResourceExhaustedError):  # where malloc refuses the third one
            session.run(ends)
    # Two of the three came from the arena.
    assert 2 * rows * MIB <= cluster[PS].status()["arena"]["peak_in_use"] <= size / 2


# --- a library that cannot be loaded --------------------------------------------------------------


@pytest.mark.parametrize(
    ("loader", "why"),
    [
        ("refuses", "libibverbs.so.1: cannot open"),
        ("older", "undefined symbol: ar_grpc_has_master"),
    ],
)
def test_library_that_cannot_be_loaded(loader: str, why: str) -> None:
    """Only who asks for `grpc+ar` gets an error, which names the library and the cure."""
    settings = {name: own_address() for name in ("grpc", "grpc+ar")}
    settings["loader"] = loader
    result = run_program(PROGRAMS / "unloadable.py", settings).result()
    (warning,) = result["warnings"]
    assert warning["kind"] == "RuntimeWarning"
    assert warning["text"].startswith("grpc+ar, grpc+mpi, grpc+verbs are not available: ")
    assert result["value"] == result["eager"] == sum(range(1000))
    for asked in ("server", "again", "status"):
        error = result[asked]
        assert error["error"] == "ImportError", result
        for part in ("libtensorflow_ar.so", why, "--force-reinstall"):
            assert part in error["text"], result
    assert result["server"]["text"] in warning["text"]


# --- two servers in one process -------------------------------------------------------------------


@pytest.mark.parametrize("apart", [True, False], ids=["ps-elsewhere", "ps-here"])
def test_two_clusters_in_one_process(apart: bool) -> None:
    """Their tasks have the same names, their variables and steps, too: nothing mixes."""
    clusters = [{job: [own_address()] for job in ("ps", "worker")} for _ in range(2)]
    program = PROGRAMS / "two_clusters.py"
    steps, sizes = 60, [2**17, 2**18]
    settings = {"clusters": clusters, "sizes": sizes, "steps": steps}
    others = [Program(program, {**settings, "jobs": ["ps"], "steps": 0})] if apart else []
    try:
        jobs = ["worker"] if apart else ["ps", "worker"]
        result = run_program(program, {**settings, "jobs": jobs}, 120).result()
    finally:
        for other in others:
            other.kill()
    assert result["clusters"] == [{"done": steps, "wrong": []}] * 2
    status = result["status"]
    paths = {f"ipv4:{spec['ps'][0]}": "shm" for spec in clusters}
    assert paths.items() <= status["paths"].items(), status["paths"]
    # At least the tensors that the workers get in each step.
    assert status["rendezvous_bytes"] >= 2 * steps * 8 * sum(sizes)
