"""Servers of grpc+verbs: how they start and end, whom they exchange tensors with, and training.

What every path does, values, steps and faults, is in the matrix. All but the first tests run in a
virtual host, which has a device.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.ar import eventually
from common.classic import (
    REFUSED,
    check_broadcast_to_grpc,
    check_mixed,
    cpu_percent_at_rest,
    mixed,
)
from common.fixtures import ClusterFactory, cluster_factory
from common.pair import MIB, PS, SUM, WORKER, large_step, session_at, summed
from common.processes import (
    CONNECTS,
    STARTS,
    Program,
    ServerProcess,
    own_address,
    run_program,
    tf_config,
    wait_together,
)
from common.protocols import MPI, VERBS
from common.reduced_values import check_reduced
from common.unheard_cancel import check_unheard_cancel
from common.virtual_host import SLOWER

pytestmark = pytest.mark.timeout(120)

TF2 = Path(__file__).parents[1] / "tf2/programs"
NEEDS = "grpc+verbs needs an RDMA device that can be used: "
#: Between two signs of life of a link (verbs/link.h), what the device's retries take, and a slow
#: host's time.
GONE_S = 5 + 4 + 15

#: Until the arena has given back what was idle for ten seconds, which it deregisters: once, and
#: 5 ms for each MB in this host.
TRIMMED_S = 10 + 10 + 5


def in_a_host(test: Any, seconds: float = 120) -> Any:
    """Runs a test in a virtual host, where all takes longer."""
    return pytest.mark.virtual_host("rxe")(pytest.mark.timeout(seconds * SLOWER)(test))


def start(env: dict[str, str]) -> dict[str, str]:
    """What a process is told that starts a server."""
    settings = {"cluster": {"worker": [own_address()]}, "protocol": VERBS}
    said: dict[str, str] = run_program(STARTS, settings, 90 * SLOWER, env).result()
    return said


# --- the start ------------------------------------------------------------------------------------


def test_without_a_device() -> None:
    """It does not fall back: the start fails, with the reason."""
    said = start({})
    assert said["error"] == "FailedPreconditionError"
    assert said["text"].startswith(NEEDS) and len(said["text"]) > len(NEEDS), said


def test_an_eager_context_without_a_device() -> None:
    """Its server cannot start, either: an error, and not the end of the process."""
    said = run_program(CONNECTS, {"host": f"{VERBS}://127.0.0.1:1"}, 90).result()
    assert said["error"] == "FailedPreconditionError"
    assert said["text"].startswith(NEEDS), said


@pytest.mark.slow
@in_a_host
def test_a_device_that_is_not_there() -> None:
    said = start({"RDMA_DEVICE": "mlx5_7"})
    assert said["error"] == "FailedPreconditionError"
    assert said["text"].startswith(NEEDS)
    assert "mlx5_7" in said["text"] and "rxe0" in said["text"], said


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [(WORKER, PS), (PS, WORKER)], ids=lambda tasks: tasks[0])
@in_a_host
def test_a_server_that_starts_late(tmp_path: Path, tasks: tuple[str, str]) -> None:
    """The first one's step waits for the other, and both tensors go by the channel."""
    spec = {"ps": [own_address()], "worker": [own_address()]}
    ways = ((PS, WORKER), (WORKER, PS))
    servers: dict[str, ServerProcess] = {}

    def start_task(task: str) -> None:
        job, index = task.split(":")
        log = tmp_path / job
        servers[task] = ServerProcess(spec, job, int(index), VERBS, log)
        servers[task].wait_ready()

    def step() -> list[float]:
        (target,) = spec[tasks[0].partition(":")[0]]
        with session_at(f"grpc://{target}", seconds=60 * SLOWER) as session:
            return [float(session.run(large_step(way, 2))) for way in ways]

    try:
        start_task(tasks[0])
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(step)
            time.sleep(8)
            assert not waiting.done(), waiting.result()
            start_task(tasks[1])
            assert waiting.result() == [0.0, 0.0]
        received = {task: servers[task].status()["verbs_bytes_received"] for task in tasks}
        # The first one is the master, too, which gets the other's float64.
        assert received == {tasks[0]: 2 * MIB + 8, tasks[1]: 2 * MIB}
    finally:
        for server in servers.values():
            server.kill()


# --- who speaks with whom -------------------------------------------------------------------------

MIXED = mixed(VERBS)


@pytest.mark.parametrize(("sender", "receiver"), list(MIXED))
@in_a_host
@pytest.mark.slow
def test_mixed_cluster(new_cluster_of_verbs: ClusterFactory, sender: str, receiver: str) -> None:
    cluster = new_cluster_of_verbs(ps=1, worker=1, protocols={PS: sender, WORKER: receiver})
    refusal = (
        '/job:ps/replica:0/task:0 does not speak grpc+verbs: start it with protocol="grpc+verbs"'
    )
    check_mixed(cluster, MIXED[sender, receiver], ("verbs_bytes_received",), refusal, seconds=60)


@pytest.mark.slow
@pytest.mark.parametrize(("sender", "receiver"), [(MPI, VERBS), (VERBS, MPI)])
@in_a_host
def test_mixed_with_grpc_mpi(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    sender: str,
    receiver: str,
) -> None:
    """Each takes its own way alone; the error says which one the sender does not speak."""
    # MPICH's ranks spin while they wait for each other, for half a minute on one core.
    (new_cluster,) = cluster_factory(request, VERBS, tmp_path_factory, "debian-openmpi")
    # Its job has a rank for each task.
    cluster = new_cluster(ps=1, worker=1, clients=1, protocols={PS: sender, WORKER: receiver})
    refusal = (
        f'/job:ps/replica:0/task:0 does not speak {receiver}: start it with protocol="{receiver}"'
    )
    counters = ("verbs_bytes_received", "mpi_bytes_received")
    check_mixed(cluster, REFUSED, counters, refusal, seconds=60)


@pytest.mark.slow
@in_a_host
def test_a_collective_over_grpc_is_told_of(tmp_path: Path) -> None:
    """A ring goes by the channel or fails; a broadcast's receiver alone may speak another one."""
    check_broadcast_to_grpc(VERBS, tmp_path, seconds=60 * SLOWER)


@pytest.mark.slow
@in_a_host
def test_a_cancel_that_comes_before_its_receive(tmp_path: Path) -> None:
    check_unheard_cancel(VERBS, tmp_path, MIB, seconds=60 * SLOWER)


@in_a_host
def test_clients(new_cluster_of_verbs: ClusterFactory) -> None:
    """A session needs no device, an eager context has a server that does; both are served."""
    cluster = new_cluster_of_verbs(ps=1, worker=1)
    assert summed(cluster.target(scheme=VERBS)) == SUM
    settings = {"host": cluster.target(scheme=VERBS)}
    said = run_program(CONNECTS, settings, 90 * SLOWER).result()
    assert said["wrong"] == 0
    assert said["verbs_bytes_received"] >= 2 * MIB


# --- at rest, and ends ----------------------------------------------------------------------------


@in_a_host
@pytest.mark.slow
def test_idle_servers_take_no_processor(new_cluster_of_verbs: ClusterFactory) -> None:
    """After tensors both ways: less than 1 % of a core each."""
    cluster = new_cluster_of_verbs(ps=1, worker=1)
    taken = cpu_percent_at_rest(cluster, 20, limit=1, patience=60, settle=TRIMMED_S)
    assert max(taken.values()) < 1, taken


@in_a_host
@pytest.mark.slow
def test_a_receiver_that_dies_leaves_nothing(new_cluster_of_verbs: ClusterFactory) -> None:
    """Nobody tells the sender over RDMA: its signs of life are not answered."""
    cluster = new_cluster_of_verbs(ps=1, worker=1)
    with session_at(cluster.target(PS), seconds=60) as session:
        assert session.run(large_step((PS, WORKER), 8)) == 0.0
    assert cluster[PS].status()["verbs_links"] >= 1
    cluster[WORKER].kill()
    assert eventually(lambda: cluster[PS].status()["verbs_links"] == 0, GONE_S)
    assert cluster[PS].alive()


# --- strategies -----------------------------------------------------------------------------------

#: ps_strategy.py's steps, each of which reads all of a variable and sends as much to be added.
STRATEGY_BYTES = 40 * 1025 * 257 * 8
#: multi_worker.py's sums over a ring of two, in which each worker receives as many bytes as a
#: tensor has: of its largest size, of all its types.
REDUCED_BYTES = (2**20 + 1) * (4 + 8 + 4 + 8 + 2)
trains = partial(in_a_host, seconds=300)


@pytest.mark.slow
@trains
def test_parameter_server_strategy_trains(new_cluster_of_verbs: ClusterFactory) -> None:
    """By rpc_layer: a custom loop with exact sums, and Keras fit; the variables live on the ps."""
    cluster = new_cluster_of_verbs(ps=1, worker=2)
    spec = {**cluster.spec, "chief": [own_address()]}
    settings = {"cluster": spec, "protocol": VERBS, "via": "rpc_layer"}
    result = cluster.client(TF2 / "ps_strategy.py", settings).wait(120).result()
    assert result["rpc_layer"] == VERBS
    loop, fit = result["loop"], result["fit"]
    assert (loop["total"], loop["big"]) == (820, [820.0])
    assert all("/job:ps/" in device for device in loop["devices"] + fit["devices"])
    assert fit["loss"][-1] < fit["loss"][0] / 2
    received = {task: cluster[task].status()["verbs_bytes_received"] for task in cluster.tasks}
    workers = [received["worker:0"], received["worker:1"]]
    assert received[PS] >= STRATEGY_BYTES <= sum(workers) and min(workers) > 0, received


@pytest.mark.slow
@trains
def test_multi_worker_mirrored_trains() -> None:
    """By TF_CONFIG; reduced values are exact, and Keras fit ends where one process alone ends."""
    script = TF2 / "multi_worker.py"
    alone = run_program(script, {"via": "local"}).result()["fit"]
    spec = {"worker": [own_address(), own_address()]}
    settings = {"cluster": spec, "protocol": VERBS, "via": "TF_CONFIG"}
    workers = [
        Program(script, {**settings, "index": index}, tf_config(spec, VERBS, "worker", index))
        for index in range(2)
    ]
    for outcome in wait_together(workers, 120):
        result = outcome.result()
        assert (result["rpc_layer"], result["replicas"]) == (VERBS, 2)
        check_reduced(result["reduced"])
        np.testing.assert_allclose(result["fit"]["weights"], alone["weights"], 1e-4)
        np.testing.assert_allclose(result["fit"]["loss"], alone["loss"], 1e-4)
        assert result["counters"]["verbs_bytes_received"] >= REDUCED_BYTES
