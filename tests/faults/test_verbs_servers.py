"""Servers of grpc+verbs: what keeps them from starting, whom they exchange tensors with, and ends.

What every path does, values, steps and faults, is in the matrix. All but the first tests run in a
virtual host, which has a device.
"""

from __future__ import annotations

from typing import Any

import pytest

from common.ar import eventually
from common.classic import check_mixed, cpu_percent_at_rest, mixed
from common.fixtures import ClusterFactory
from common.pair import MIB, PS, SUM, WORKER, large_step, session_at, summed
from common.processes import CONNECTS, STARTS, own_address, run_program
from common.protocols import VERBS
from common.repeated import few
from common.virtual_host import SLOWER

pytestmark = pytest.mark.timeout(120)

NEEDS = "grpc+verbs needs an RDMA device that can be used: "
#: Between two signs of life of a link (verbs/link.h), what the device's retries take, and a slow
#: host's time.
GONE_S = 5 + 4 + 15

#: Until the arena has given back what was idle for ten seconds, which it deregisters: once, and
#: 5 ms for each MB in this host.
TRIMMED_S = 10 + 10 + 5


def in_a_host(test: Any) -> Any:
    """Runs a test in a virtual host, where all takes longer."""
    return pytest.mark.virtual_host("rxe")(pytest.mark.timeout(120 * SLOWER)(test))


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


# --- who speaks with whom -------------------------------------------------------------------------

MIXED = mixed(VERBS)


@pytest.mark.parametrize(("sender", "receiver"), few(MIXED, (VERBS, "grpc+ar")))
@in_a_host
def test_mixed_cluster(new_cluster_of_verbs: ClusterFactory, sender: str, receiver: str) -> None:
    cluster = new_cluster_of_verbs(ps=1, worker=1, protocols={PS: sender, WORKER: receiver})
    refusal = (
        '/job:ps/replica:0/task:0 does not speak grpc+verbs: start it with protocol="grpc+verbs"'
    )
    check_mixed(cluster, MIXED[sender, receiver], ("verbs_bytes_received",), refusal, seconds=60)


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
def test_idle_servers_take_no_processor(new_cluster_of_verbs: ClusterFactory) -> None:
    """After tensors both ways: less than 1 % of a core each."""
    cluster = new_cluster_of_verbs(ps=1, worker=1)
    taken = cpu_percent_at_rest(cluster, 20, limit=1, patience=60, settle=TRIMMED_S)
    assert max(taken.values()) < 1, taken


@in_a_host
def test_a_receiver_that_dies_leaves_nothing(new_cluster_of_verbs: ClusterFactory) -> None:
    """Nobody tells the sender over RDMA: its signs of life are not answered."""
    cluster = new_cluster_of_verbs(ps=1, worker=1)
    with session_at(cluster.target(PS), seconds=60) as session:
        assert session.run(large_step((PS, WORKER), 8)) == 0.0
    assert cluster[PS].status()["verbs_links"] >= 1
    cluster[WORKER].kill()
    assert eventually(lambda: cluster[PS].status()["verbs_links"] == 0, GONE_S)
    assert cluster[PS].alive()
