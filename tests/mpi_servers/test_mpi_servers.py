"""Servers of grpc+mpi: how they start and end, whom they can exchange tensors with, and training.

What every path does, values, steps and faults, is in the matrix.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from common.ar import eventually
from common.classic import (
    BY_CHANNEL,
    IN_RESPONSE,
    REFUSED,
    check_broadcast_to_grpc,
    check_mixed,
    cpu_percent_at_rest,
    mixed,
)
from common.fixtures import ClusterFactory
from common.graphs import XLA, between_devices
from common.mpi_job import Job
from common.page import PROTOCOLS
from common.pair import MIB, PS, SUM, WORKER, large_step, session_at, summed
from common.processes import (
    CONNECTS,
    STARTS,
    Program,
    own_address,
    run_program,
    tf_config,
    wait_together,
)
from common.protocols import MPI, STOCK, VERBS
from common.reduced_values import check_reduced
from common.repeated import few
from common.sessions import task_device
from common.unheard_cancel import check_unheard_cancel

pytestmark = pytest.mark.timeout(180)

TESTS = Path(__file__).parents[1]
PROGRAMS = Path(__file__).with_name("programs")
MPICH, OPEN_MPI = "debian-mpich", "debian-openmpi"
#: A server's log has what the library says of itself, FINALIZES among it.
TALKATIVE = {"TF_CPP_MIN_LOG_LEVEL": "0"}
#: Its output to a pipe waits for the program's end.
BUFFERED = {"PYTHONUNBUFFERED": ""}

FINALIZES = "this process waits in MPI_Finalize for the other ranks of its MPI job to end"

of_debian = pytest.mark.parametrize("mpi", few([MPICH, OPEN_MPI], MPICH))
over_mpich = pytest.mark.parametrize("mpi", [MPICH])


# --- the start ------------------------------------------------------------------------------------


def said_by_a_pair(mpi: str, pause: float = 0) -> list[dict[str, Any]]:
    """What the two tasks of task_of_rank.py say, the later one started after a pause.

    Both serve until the worker's step is done: a ps that ended would leave the job.
    """
    settings = {
        "cluster": {"ps": [own_address()], "worker": [own_address()]},
        "moved": 2 * MIB,
        "stays": True,
        "says": "IMPORTED",
    }
    programs: list[Program] = []
    with Job(mpi, 2) as job:
        try:
            for seconds in (0, pause):
                if seconds:
                    assert programs[0].line(60).startswith("IMPORTED")
                    time.sleep(seconds)
                programs.append(Program(PROGRAMS / "task_of_rank.py", settings, job=job))
            for program in programs[1:] if pause else programs:
                assert program.line(60).startswith("IMPORTED")
            assert all(program.line(60).startswith("READY") for program in programs)
            return [json.loads(program.line(60)) for program in programs]
        finally:
            for program in programs:
                program.kill()


@of_debian
@pytest.mark.slow
def test_ranks_need_not_be_the_tasks_numbers(mpi: str) -> None:
    """The later task is the earlier rank; every tensor finds its way all the same."""
    said = said_by_a_pair(mpi)
    assert sorted((each["rank"], each["task"]) for each in said) == [(0, WORKER), (1, PS)]
    (worker,) = (each for each in said if each["task"] == WORKER)
    assert worker.get("spread") == 0.0, worker
    assert worker["mpi_bytes_received"] >= 2 * MIB


@over_mpich
@pytest.mark.slow
def test_a_server_that_starts_late_is_waited_for(mpi: str) -> None:
    """The others wait in their start, in whichever order they come."""
    said = said_by_a_pair(mpi, pause=8)
    assert sorted(each["task"] for each in said) == [PS, WORKER]
    assert max(each["start_seconds"] for each in said) > 4


def start_alone(env: dict[str, str], tasks: int = 1, job: Job | None = None) -> Any:
    """What a process is told that starts a server of a cluster of so many tasks."""
    cluster = {"worker": [own_address() for _ in range(tasks)]}
    settings = {"cluster": cluster, "protocol": MPI}
    outcome = run_program(STARTS, settings, 90, env, job)
    return outcome.result()


def test_without_a_launcher() -> None:
    assert start_alone({}) == {
        "error": "FailedPreconditionError",
        "text": "this process was not started by an MPI launcher: start all tasks of the cluster "
        "with one, as in mpirun -np TASKS python3 PROGRAM",
    }


def test_a_job_that_is_too_small() -> None:
    with Job(MPICH, 2) as job:
        cluster = {"worker": [own_address() for _ in range(3)]}
        settings = {"cluster": cluster, "protocol": MPI}
        programs = [Program(STARTS, settings, job=job) for _ in range(2)]
        said = [outcome.result() for outcome in wait_together(programs, 90)]
    for each in said:
        assert each == {
            "error": "FailedPreconditionError",
            "text": "the MPI job has 2 ranks, the cluster has 3 tasks: start all of them with one "
            "mpirun -np 3",
        }


def test_a_library_that_is_not_there() -> None:
    with Job(MPICH, 1, counted=False) as job:
        said = start_alone({"AR_MPI_LIB": "/nowhere/libmpi.so.12"}, job=job)
    assert said["error"] == "UnavailableError"
    assert said["text"].startswith("no MPI library: /nowhere/libmpi.so.12")
    assert said["text"].endswith("(correct AR_MPI_LIB, or unset it)")


@pytest.mark.slow
def test_two_libraries_in_one_process() -> None:
    """One that the program has loaded, and another one that AR_MPI_LIB names."""
    with Job(OPEN_MPI, 1, counted=False) as job:
        settings = {
            "cluster": {"worker": [own_address()]},
            "protocol": MPI,
            "loads": "libmpich.so.12",
        }
        env = {"AR_MPI_LIB": "libmpi.so.40"}
        said = run_program(STARTS, settings, 90, env, job).result()
    assert said["error"] == "FailedPreconditionError"
    assert "AR_MPI_LIB names libmpi.so.40, but " in said["text"]
    assert "two MPI libraries do not go together" in said["text"]


# --- who speaks with whom -------------------------------------------------------------------------

MIXED = mixed(MPI)


@pytest.mark.parametrize(
    ("sender", "receiver"),
    few(MIXED, (STOCK, MPI), (MPI, STOCK)),
    ids=lambda name: name.replace("+", "_"),
)
@over_mpich
def test_mixed_cluster(
    new_mpi_cluster: ClusterFactory, mpi: str, sender: str, receiver: str
) -> None:
    """The job has a rank for each task, else no server of grpc+mpi starts."""
    cluster = new_mpi_cluster(ps=1, worker=1, clients=1, protocols={PS: sender, WORKER: receiver})
    refusal = (
        "/job:ps/replica:0/task:0 does not speak grpc+mpi: start it with "
        'protocol="grpc+mpi", in the same MPI job'
    )
    check_mixed(cluster, MIXED[sender, receiver], ("mpi_bytes_received", "pmpi_bytes"), refusal)


def test_the_docs_say_what_mixed_clusters_do() -> None:
    """The page's table is what these tests, and those of grpc+verbs, assert."""
    section = PROTOCOLS.read_text().split("## Mixed clusters")[1].split("\n## ")[0]
    fates = {"is refused": REFUSED, "arrives in the response": IN_RESPONSE}
    said = {}
    for senders, receivers, fate in re.findall(r"^\| (.*) \| (`.*`) \| (.*) \|$", section, re.M):
        found = [fates[known] for known in fates if fate.startswith(known)]
        for way in itertools.product(
            *(re.findall("`(.*?)`", names) for names in (senders, receivers))
        ):
            if found:
                said[way] = found[0]
    apart = {(MPI, VERBS): REFUSED, (VERBS, MPI): REFUSED}
    tested = {**mixed(MPI), **mixed(VERBS), **apart}
    assert said == {way: fate for way, fate in tested.items() if fate != BY_CHANNEL}


@over_mpich
@pytest.mark.parametrize("sink", ["CPU", "XLA_CPU"])
@pytest.mark.slow
def test_to_a_device_that_is_no_cpu(new_mpi_cluster: ClusterFactory, mpi: str, sink: str) -> None:
    """What it receives comes in the response, as only it knows its memory."""
    cluster = new_mpi_cluster(XLA, ps=1, worker=1)
    with session_at(cluster.target()) as session:
        values = between_devices(task_device(PS), task_device(WORKER).replace("CPU", sink), MIB)
        before = cluster[WORKER].counters()["mpi_bytes_received"]
        wanted, *ends = session.run(values)
        received = cluster[WORKER].counters()["mpi_bytes_received"] - before
    assert ends == [wanted] * 2
    # The value itself goes to the client's master, which is the worker.
    assert received == 4 + (4 * MIB if sink == "CPU" else 0)


@over_mpich
@pytest.mark.slow
def test_a_collective_over_grpc_is_told_of(
    new_mpi_cluster: ClusterFactory, mpi: str, tmp_path: Path
) -> None:
    """A ring goes by the channel or fails; a broadcast's receiver alone may speak another one."""
    # The job needs a rank for each task of the broadcast.
    check_broadcast_to_grpc(MPI, tmp_path, new_mpi_cluster(worker=1, clients=1).client)


@of_debian
def test_a_cancel_that_comes_before_its_receive(mpi: str, tmp_path: Path) -> None:
    with Job(mpi, 2) as job:
        check_unheard_cancel(MPI, tmp_path, MIB, job=job)


@pytest.mark.slow
def test_servers_of_two_jobs() -> None:
    """They find out when they say hello, and the error says what to do."""
    settings = {"cluster": {"ps": [own_address()], "worker": [own_address()]}, "moved": 2 * MIB}
    other = {"task": "other:0", "cluster": {"other": [own_address()]}, "stays": True}
    script = PROGRAMS / "task_of_rank.py"
    with Job(MPICH, 2) as jobs_ps, Job(MPICH, 2) as jobs_worker:
        worker = Program(script, {**settings, "task": WORKER, "stays": True}, job=jobs_worker)
        rest = [
            Program(script, {**settings, "task": PS, "stays": True}, job=jobs_ps),
            Program(script, {**settings, **other}, job=jobs_ps),
            Program(
                script,
                {**settings, **other, "cluster": {"other": [own_address()]}},
                job=jobs_worker,
            ),
        ]
        try:
            assert all(program.line(120).startswith("READY") for program in [worker, *rest])
            said = json.loads(worker.line(60))
        finally:
            for program in [worker, *rest]:
                program.kill()
    assert "the two servers of grpc+mpi are not in one MPI job" in said["error"]
    assert "start all of them by one mpirun" in said["error"]


@over_mpich
def test_a_client_that_is_no_rank(new_mpi_cluster: ClusterFactory, mpi: str) -> None:
    """A session needs no MPI: its RPCs are gRPC's. An eager context has a server, which does."""
    cluster = new_mpi_cluster(ps=1, worker=1)
    assert summed(cluster.target(scheme=MPI)) == SUM
    settings = {"host": cluster.target(scheme=MPI)}
    said = run_program(CONNECTS, settings).result()
    assert said["error"] == "FailedPreconditionError"
    assert said["text"].startswith("this process was not started by an MPI launcher")


@over_mpich
@pytest.mark.slow
def test_connect_to_a_host(new_mpi_cluster: ClusterFactory, mpi: str) -> None:
    cluster = new_mpi_cluster(ps=1, worker=1, clients=1)
    settings = {"host": cluster.target(scheme=MPI)}
    said = cluster.client(CONNECTS, settings).wait(60).result()
    assert said["wrong"] == 0
    assert said["mpi_bytes_received"] >= 2 * MIB


def probed(ports: set[int]) -> list[bool]:
    """Of each end of an established TCP connection to one of these ports: probes are due."""
    ends = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, remote, state, _, timer = line.split()[:6]
            used = {int(address.rpartition(":")[2], 16) for address in (local, remote)}
            if state == "01" and used & ports:
                ends.append(timer.startswith("02:"))
    return ends


@over_mpich
@pytest.mark.slow
def test_connections_of_servers_are_probed(new_mpi_cluster: ClusterFactory, mpi: str) -> None:
    """Both ends ask the other's kernel whether it lives: a host that dies says nothing."""
    cluster = new_mpi_cluster(ps=1, worker=1)
    with session_at(cluster.target()) as session:
        assert session.run(large_step((PS, WORKER), 2)) == 0.0
    (port,) = (int(each.rpartition(":")[2]) for each in cluster.spec["ps"])
    # The worker's alone go to the ps; the session's to the worker are stock at the client's end.
    assert eventually(lambda: len(probed({port})) >= 2 and all(probed({port})), 10), probed({port})


# --- at rest, and the end -------------------------------------------------------------------------


@of_debian
@pytest.mark.slow
def test_idle_servers_take_no_processor(new_mpi_cluster: ClusterFactory, mpi: str) -> None:
    """After tensors both ways and a session's end: less than 1 % of a core each."""
    cluster = new_mpi_cluster(ps=1, worker=1)
    taken = cpu_percent_at_rest(cluster, 10, limit=1)
    print(mpi, taken)
    assert max(taken.values()) < 1, taken


@of_debian
def test_servers_leave_together(new_mpi_cluster: ClusterFactory, mpi: str) -> None:
    """Each waits for the others in MPI_Finalize, says so, and then the job ends well."""
    cluster = new_mpi_cluster(env=TALKATIVE, ps=1, worker=1)
    with session_at(cluster.target()) as session:
        assert session.run(large_step((PS, WORKER), 2)) == 0.0
    cluster[WORKER].ask_to_leave()
    assert eventually(lambda: FINALIZES in cluster[WORKER].tail(), 20)
    assert cluster[WORKER].alive()
    assert cluster[PS].leave(20) == 0
    assert eventually(lambda: not cluster[WORKER].alive(), 20)
    assert cluster.jobs_status(20) == [0]


@over_mpich
@pytest.mark.slow
def test_who_asks_a_server_that_leaves_is_told(new_mpi_cluster: ClusterFactory, mpi: str) -> None:
    """It waits in MPI_Finalize and still answers calls: not that it sends what it does not send."""
    cluster = new_mpi_cluster(env=TALKATIVE, ps=1, worker=1)
    with session_at(cluster.target(), seconds=20) as session:
        step = large_step((PS, WORKER), 2)
        assert session.run(step) == 0.0
        cluster[PS].ask_to_leave()
        assert eventually(lambda: FINALIZES in cluster[PS].tail(), 20)
        began = time.monotonic()
        with pytest.raises(tf.errors.UnavailableError, match="the MPI channel has ended"):
            session.run(step)
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("mpi", few([MPICH, OPEN_MPI, "mpich-5-standard", "openmpi-5"], OPEN_MPI))
def test_by_default_a_rank_that_dies_ends_its_job(mpi: str) -> None:
    """What the launchers do when nobody has asked for anything else."""
    settings = {
        "cluster": {"ps": [own_address()], "worker": [own_address()]},
        "moved": 0,
        "stays": True,
    }
    with Job(mpi, 2, survive=False) as job:
        programs = [Program(PROGRAMS / "task_of_rank.py", settings, job=job) for _ in range(2)]
        try:
            assert all(program.line(60).startswith("READY") for program in programs)
            programs[0].kill()
            assert job.wait(30) != 0
            assert programs[1].wait(30).status != 0
        finally:
            for program in programs:
                program.kill()


@pytest.mark.parametrize("settings", few([{}, {"exits": 3}], {}), ids=["raises", "exits"])
@of_debian
def test_a_program_that_fails_ends_its_job(mpi: str, settings: dict[str, int]) -> None:
    """At once, and with what it has said, though the other rank waits in a step for its server."""
    spec = {"ps": [own_address()], "worker": [own_address()]}
    script = PROGRAMS / "failing_ps.py"
    with Job(mpi, 2, survive=False) as job:
        ps, worker = programs = [
            Program(script, {**settings, "cluster": spec, "task": task}, BUFFERED, job)
            for task in (PS, WORKER)
        ]
        try:
            assert [program.line(60) for program in programs] == ["READY\n"] * 2
            assert worker.line(60) == "WAITS\n"
            time.sleep(1)
            ps.tell({})
            outcome = ps.wait(20)
            assert job.wait(20) != 0
            assert worker.wait(20).status != 0
        finally:
            for program in programs:
                program.kill()
    assert outcome.stdout == "FAILS\n"
    assert outcome.status == settings.get("exits", 1)
    assert outcome.stderr.count("Traceback (most recent call last)") == (not settings)


# --- strategies -----------------------------------------------------------------------------------


@over_mpich
@pytest.mark.slow
def test_parameter_server_strategy_trains(new_mpi_cluster: ClusterFactory, mpi: str) -> None:
    """A custom loop with exact sums, and Keras fit; the variables live on the ps."""
    cluster = new_mpi_cluster(ps=1, worker=2, clients=1)
    spec = {**cluster.spec, "chief": [own_address()]}
    settings = {"cluster": spec, "protocol": MPI, "via": "rpc_layer"}
    result = cluster.client(TESTS / "tf2/programs/ps_strategy.py", settings).wait(120).result()
    assert result["rpc_layer"] == MPI
    assert (result["loop"]["total"], result["loop"]["big"]) == (820, [820.0])
    loss = result["fit"]["loss"]
    assert loss[-1] < loss[0] / 2
    received = [cluster[task].counters()["mpi_bytes_received"] for task in cluster.tasks]
    assert min(received) > 0, received


#: gRPC logs the headers of each call that a process makes.
CALLS_LOGGED = {"GRPC_VERBOSITY": "info", "GRPC_TRACE": "http"}


def calls_made(log: str, method: str) -> int:
    return len(re.findall(rf":HDR:CLI::path: /tensorflow\.WorkerService/{method}\b", log))


@of_debian
def test_multi_worker_mirrored_trains(mpi: str) -> None:
    """By TF_CONFIG; reduced values are exact, and Keras fit ends where one process alone ends.

    A worker says hello to the other and watches it once for each worker cache, not for each buffer.
    """
    script = TESTS / "tf2/programs/multi_worker.py"
    alone = run_program(script, {"via": "local"}).result()["fit"]
    spec = {"worker": [own_address(), own_address()]}
    with Job(mpi, 2) as job:
        settings = {"cluster": spec, "protocol": MPI, "via": "TF_CONFIG"}
        workers = [
            Program(
                script, {**settings, "index": i}, {**tf_config(spec, MPI, "worker", i), **env}, job
            )
            # The first alone: what the other writes is not read before the first has ended.
            for i, env in enumerate((CALLS_LOGGED, {}))
        ]
        outcomes = wait_together(workers, 120)
        assert job.wait(20) == 0
    # A collective receives by RecvBuf; a hello, a watch and a bye are RecvTensor calls.
    buffers, own = (calls_made(outcomes[0].stderr, name) for name in ("RecvBuf", "RecvTensor"))
    assert buffers > 40, buffers
    assert 2 <= own <= 10, (own, buffers)
    results = [outcome.result() for outcome in outcomes]
    for result in results:
        assert (result["rpc_layer"], result["replicas"]) == (MPI, 2)
        check_reduced(result["reduced"])
        np.testing.assert_allclose(result["fit"]["weights"], alone["weights"], 1e-4)
        np.testing.assert_allclose(result["fit"]["loss"], alone["loss"], 1e-4)
