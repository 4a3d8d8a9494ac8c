"""grpc+ar where an RDMA device is there and does not connect: it goes on over TCP, and says so."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from common.ar import eventually, path_of
from common.fixtures import ClusterFactory
from common.pair import PS, WORKER, large_step, session_at
from common.preload import preloadable
from common.repeated import few
from common.virtual_host import SLOWER

pytestmark = [pytest.mark.timeout(120 * SLOWER), pytest.mark.virtual_host("rxe")]

_HERE = Path(__file__).parent
_REPO = _HERE.parents[1]
_WAYS = ((PS, WORKER), (WORKER, PS))
UNANSWERED = "the peer's RDMA device has not answered within 1500 ms: a firewall must let UDP port"
#: A connection that is on TCP for now lasts ten seconds, and the next one needs its time.
_AGAIN = 10 + 5 * SLOWER


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
    library = preloadable(
        _HERE / "refusing_verbs.cc",
        tmp_path,
        f"-I{_REPO}",
        f"-Wl,--no-as-needed,--version-script={_HERE / 'refusing_verbs.map'}",
        "-l:libibverbs.so.1",
    )
    there = tmp_path / "refused"
    there.touch()
    refusing = {
        "AR_IBVERBS_LIB": str(library),
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
