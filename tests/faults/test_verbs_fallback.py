"""grpc+ar on an RDMA device that does not connect, or fails later, while TCP works."""

from __future__ import annotations

import errno
import os
import re
import signal
from pathlib import Path

import pytest
import tensorflow as tf

from common.ar import eventually, path_of
from common.fixtures import ClusterFactory
from common.interrupted import long_transfer
from common.loops import Loop, callable_of
from common.pair import MIB, PS, WORKER, large_step, session_at
from common.preload import preloadable
from common.repeated import few
from common.virtual_host import SLOWER

pytestmark = [pytest.mark.timeout(120 * SLOWER), pytest.mark.virtual_host("rxe")]

_HERE = Path(__file__).parent
_REPO = _HERE.parents[1]
_KIB = 2**10
_WAYS = ((PS, WORKER), (WORKER, PS))
UNANSWERED = "the peer's RDMA device has not answered within 1500 ms: a firewall must let UDP port"
#: A connection that is on TCP for now lasts ten seconds, and the next one needs its time.
_AGAIN = 10 + 5 * SLOWER


def faulty(folder: Path) -> dict[str, str]:
    """The environment of a server with faulty_verbs.cc."""
    library = preloadable(
        _HERE / "faulty_verbs.cc",
        folder,
        f"-I{_REPO}",
        f"-Wl,--no-as-needed,--version-script={_HERE / 'faulty_verbs.map'}",
        "-l:libibverbs.so.1",
    )
    return {"AR_IBVERBS_LIB": str(library)}


@pytest.mark.parametrize(
    ("refuses", "why"),
    few(
        [(PS, 0), *((task, why) for task in (PS, WORKER) for why in (errno.EINVAL, errno.ENOMEM))],
        (PS, 0),
    ),
    ids=lambda value: errno.errorcode.get(value, "silent") if isinstance(value, int) else value,
)
def test_a_device_that_connects_no_queue_pair(
    new_ar_cluster: ClusterFactory, tmp_path: Path, refuses: str, why: int
) -> None:
    """No step fails, both logs say why, and the next connection tries again: RDMA is back then."""
    there = tmp_path / "refused"
    there.touch()
    refusing = {
        **faulty(tmp_path),
        "REFUSED_WHILE": str(there),
        "REFUSED_WITH": str(why),
    }
    cluster = new_ar_cluster(
        {"AR_GRPC_FABRICS": "verbs,tcp"}, envs={refuses: refusing}, ps=1, worker=1
    )

    def step() -> list[float]:
        with session_at(cluster.target(WORKER), seconds=60 * SLOWER) as session:
            return [float(session.run(large_step(way, 4))) for way in _WAYS]

    def paths() -> set[str | None]:
        return {path_of(cluster, client, server) for client, server in _WAYS}

    assert step() == [0.0, 0.0]
    assert paths() == {"tcp"}
    assert all(cluster[task].status()["rendezvous"] == 0 for task in (PS, WORKER))
    said = f"cannot be connected to the peer's: {os.strerror(why)}" if why else UNANSWERED
    for task in (PS, WORKER):
        log = cluster[task].tail()
        assert re.search(rf": W [^\n]*over tcp[^\n]*: verbs: [^\n]*{said}", log), log

    there.unlink()
    assert eventually(lambda: step() == [0.0, 0.0] and paths() == {"verbs"}, _AGAIN)

    def read() -> bool:
        return all(cluster[task].status()["rendezvous"] > 0 for task in (PS, WORKER))

    # Memory is registered while it is first used.
    assert eventually(lambda: step() == [0.0, 0.0] and read(), _AGAIN)


@pytest.mark.slow
def test_each_log_says_which_end_has_no_device(new_ar_cluster: ClusterFactory) -> None:
    """Also of an end that has shared memory, which the other end may not use."""
    library = "/missing/libibverbs.so.1"
    envs = {
        PS: {"AR_GRPC_FABRICS": "shm,verbs,tcp", "AR_IBVERBS_LIB": library},
        WORKER: {"AR_GRPC_FABRICS": "verbs,tcp"},
    }
    cluster = new_ar_cluster(envs=envs, ps=1, worker=1)
    for way in _WAYS:
        with session_at(cluster.target(WORKER), seconds=60 * SLOWER) as session:
            assert session.run(large_step(way, 4)) == 0.0
    assert {path_of(cluster, client, server) for client, server in _WAYS} == {"tcp"}
    lacks, has = cluster[PS].tail(), cluster[WORKER].tail()
    said = rf"over tcp: verbs: the server lacks it: [^\n]*{library}"
    assert re.search(said, has), has
    said = rf"over tcp: the server allows none of the client's fabrics; verbs: [^\n]*{library}"
    assert re.search(said, lacks), lacks


@pytest.mark.slow
@pytest.mark.parametrize("broken", [PS, WORKER])
def test_a_device_that_fails_in_the_midst_of_a_step(
    new_ar_cluster: ClusterFactory, tmp_path: Path, broken: str
) -> None:
    """The step fails as for a lost peer, nothing hangs, and the next one goes by RDMA again."""
    cluster = new_ar_cluster(
        {"AR_GRPC_FABRICS": "verbs,tcp"}, envs={broken: faulty(tmp_path)}, ps=1, worker=1
    )
    with session_at(cluster.target(WORKER), seconds=60 * SLOWER) as session:
        step = callable_of(session, long_transfer(PS, WORKER, 32))
        loop = Loop(step)
        loop.wait_steps(2, 30 * SLOWER)
        assert path_of(cluster, WORKER, PS) == "verbs"
        os.kill(cluster[broken].pid, signal.SIGUSR2)
        error = loop.outcome(20 * SLOWER)
        assert isinstance(error, tf.errors.UnavailableError), repr(error)

        before = cluster[WORKER].status()["rendezvous"]

        def works() -> bool:
            try:
                return bool(step() == 0.0)
            except tf.errors.UnavailableError:  # of the connection the other way
                return False

        assert eventually(works, _AGAIN)
        assert eventually(lambda: step() == 0.0 and cluster[WORKER].status()["rendezvous"] > before)
    assert path_of(cluster, WORKER, PS) == "verbs"
    assert all(cluster[task].alive() for task in (PS, WORKER))


@pytest.mark.parametrize(
    ("locked", "fabric"),
    [
        pytest.param(64 * _KIB, "tcp", id="too little for a connection"),
        pytest.param(16 * MIB, "verbs", id="too little for a tensor"),
    ],
)
@pytest.mark.parametrize("limited", [PS, WORKER])
@pytest.mark.slow
def test_a_server_that_may_lock_little(
    new_ar_cluster: ClusterFactory, tmp_path: Path, limited: str, locked: int, fabric: str
) -> None:
    """No step fails, the values are right, and its log says what to raise."""
    limits = {
        "LD_PRELOAD": str(preloadable(_HERE / "few_locked.cc", tmp_path)),
        "LOCKED_BYTES": str(locked),
    }
    cluster = new_ar_cluster(
        {"AR_GRPC_FABRICS": "verbs,tcp"}, envs={limited: limits}, ps=1, worker=1
    )
    for _ in range(2):
        with session_at(cluster.target(WORKER), seconds=60 * SLOWER) as session:
            for way in _WAYS:
                assert session.run(large_step(way, 32)) == 0.0
    for client, server in _WAYS:
        assert path_of(cluster, client, server) == fabric

    def said() -> list[str]:
        return [line for line in cluster[limited].tail().splitlines() if "`ulimit -l" in line]

    if fabric == "tcp":
        # Each connection says so.
        assert len(said()) >= len(_WAYS), said()
        assert all("limited to 64 KiB: raise `ulimit -l`" in line for line in said()), said()
    else:
        # Once in the life of a process, when the first tensor is refused.
        assert eventually(said, _AGAIN) and len(said()) == 1, said()
