"""A short run of `bench recv` on the wheel: every way to run a protocol is what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from artf_cli import quickstart, venv
from artf_cli.bench import recv
from artf_cli.cluster import PS, Cluster, leave_all
from artf_cli.supervise import Group


@pytest.fixture(scope="module")
def python(wheel: Path) -> Path:
    return venv.make(wheel)


def test_rows_of_every_path(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # So little memory lies in no arena, and no pause is needed to make it cold.
    monkeypatch.setattr(recv, "_PAUSE_S", 0.0)
    ways = ["grpc", "grpc+ar", "grpc+ar/tcp", "grpc+mpi"]
    rows = recv.run(python, ways, ["empty", "4"], rounds=1, cold_rounds=1, progress=False)
    paths = {"grpc": "tcp", "grpc+ar": "shm", "grpc+ar/tcp": "tcp", "grpc+mpi": "mpi"}
    assert [(row["metric"], row["bytes"], row["protocol"], row["fabric"]) for row in rows] == [
        # An empty step has no tensor that could go by MPI.
        (metric, size, way, paths[way] if size or way != "grpc+mpi" else "tcp")
        for metric in (recv.STEP, recv.COLD)
        for size in (0, 4)
        for way in ways
    ]
    assert all(row["median_us"] > 10 for row in rows)
    spent = [row["cpu_us_per_step"] for row in rows if row["metric"] == recv.STEP]
    assert all(us is not None and us > 10 for us in spent)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_quickstart_trains_over_each_mpi(python: Path) -> None:
    """With no more than the way's name. Below an accuracy of 0.95 it fails by itself."""
    ways = ["grpc+mpi", "grpc+mpi/openmpi"]
    runs = quickstart.run(python, ways, rounds=1)
    assert [run["protocol"] for run in runs] == ways
    assert all(run["accuracy"] >= 0.95 and run["steps_per_second"] > 0 for run in runs)


def test_every_channel_has_a_connection(python: Path, tmp_path: Path) -> None:
    with Group(tmp_path) as group:
        one, four = (
            Cluster(group, python, "recv_worker.py", way, workers=1)
            for way in ("grpc", "grpc/4channels/threads")
        )
        opened = []
        for cluster in (one, four):
            cluster.serve()
            before = len(cluster.report()[PS]["connections"])
            cluster.ask(["worker:0"], "case", size=4, tensors=16, seed=0)
            opened.append(len(cluster.report()[PS]["connections"]) - before)
        leave_all(group, [one, four])
    assert opened == [1, 4]
