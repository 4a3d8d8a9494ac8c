"""The recommender's driver over tasks that need no TensorFlow: turns, sums, metrics, ratios."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fake_tasks import make_runtime

from artf_cli import cluster
from artf_cli.bench import recommender
from artf_cli.bench.recommender import Case, Measured, percentile, rows_of
from artf_cli.console import out
from artf_cli.errors import ArtfError

HERE = Path(sys.executable)
_TASK = """
import os, sys
from task import Task

class Fake(Task):
    def __init__(self):
        super().__init__()
        self.totals, self.moved = {}, 0

    def log(self, *words):
        with open(os.environ["FAKE_LOG"], "a") as log:
            print(*words, self.protocol, file=log)

    def do_serve(self, cluster, job, index, protocol):
        self.take_place(cluster, index)
        self.job, self.protocol = job, protocol
        self.workers = len(cluster["worker"])

    def do_report(self):
        peers = ["ps:0"] if self.job == "worker" else ["worker:0", "worker:1"]
        fabrics = dict.fromkeys(peers, "shm")
        self.moved += 10**12
        return {"connections": [], "fabrics": fabrics, "fabric_bytes_received": self.moved}

    def do_mix(self, name, pulls, updates, ids):
        self.totals[name] = 0

    def do_initialise(self, name):
        self.log("initialise", name, self.index)

    def do_check(self, name, steps):
        self.log("check", name, steps)

    def do_warm(self, name):
        return {"steps": 1}

    def do_burst(self, name, start, seconds, least):
        self.log("burst", name)
        slow = 4 if self.protocol == "grpc" else 1
        return {"samples_us": [slow * 10.0] * 99 + [slow * 50.0], "steps": 100, "seconds": slow}

Fake().serve_commands()
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    runtime = make_runtime(tmp_path / "runtime")
    for script in ("recommender_worker.py", "recommender_strategy.py"):
        (runtime / script).write_text(_TASK)
    monkeypatch.setenv("ARTF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setattr(cluster, "_RUNTIME", runtime)
    return tmp_path / "log"


def test_protocols_take_turns_and_every_step_is_in_the_sums(log: Path) -> None:
    rows = recommender.run(HERE, ["grpc", "grpc+x"], ["fused"], [1, 2], rounds=2, progress=False)
    lines = log.read_text().splitlines()
    begun = [f"{word} fused {rest}" for word, rest in (("initialise", "0"), ("check", "0"))]
    for protocol in ("grpc", "grpc+x"):
        # Both workers check, the first one alone initialises.
        assert [f"{line} {protocol}" for line in begun] == [
            line for line in dict.fromkeys(lines) if line in {f"{one} {protocol}" for one in begun}
        ]
        assert lines.count(f"check fused 0 {protocol}") == 2
        # 100 steps and one before them, in two rounds, of one worker and then of two.
        assert lines.count(f"check fused {2 * 101 + 2 * 2 * 101} {protocol}") == 2
    bursts = [line.split()[2] for line in lines if line.startswith("burst")]
    one = ["grpc", "grpc+x"]
    two = ["grpc", "grpc", "grpc+x", "grpc+x"]
    assert bursts == [*one, *two, *one[::-1], *two[::-1]]
    assert [(row["workers"], row["protocol"], row["metric"]) for row in rows] == [
        (workers, protocol, metric)
        for workers in (1, 2)
        for protocol in one
        for metric in recommender.METRICS
    ]
    stock, ours = rows[6], rows[9]
    assert ours["metric"] == "steps_per_second"
    assert (stock["value"], ours["value"], ours["ratio"]) == (50.0, 200.0, 4.0)
    assert (ours["samples"], ours["steps"], ours["ratio_interval"]) == ([200.0, 200.0], 400, None)
    assert (ours["bench"], ours["api"], ours["scheme"], ours["fabric"]) == (
        *("recommender", "session", "fused", "shm"),
    )
    assert (ours["bytes"], ours["tensors"]) == (35_651_584, 4)
    assert (rows[7]["value"], rows[10]["value"], rows[10]["ratio"]) == (40.0, 10.0, 4.0)
    assert rows[11]["metric"] == "ps_cpu_s_per_step"
    assert rows[11]["value"] >= 0
    with out.capture() as capture:
        recommender.render(rows)
    for word in ("fused", "35.7", "shm", "200", "4.00x", "10 µs"):
        assert word in capture.get()


def test_a_strategy_has_a_cluster_and_a_coordinator_for_each_number_of_workers(log: Path) -> None:
    rows = recommender.run(
        HERE, ["grpc+x"], ["empty"], [1, 2], rounds=1, api="strategy", progress=False
    )
    assert {row["api"] for row in rows} == {"strategy"}
    # The server has no part in a step that moves nothing; without stock there is no ratio.
    assert [(row["workers"], row["metric"]) for row in rows] == [
        (workers, metric) for workers in (1, 2) for metric in recommender.METRICS[:2]
    ]
    assert [(row["fabric"], row["ratio"]) for row in rows] == [("none", None)] * 4
    assert log.read_text().splitlines().count("burst empty grpc+x") == 2
    recommender.render(rows)


def measured(rates: list[float], cpu: list[float], steps_us: list[float]) -> Measured:
    p99 = [percentile(steps_us, 99)] * len(rates)
    values = dict(zip(recommender.METRICS, (rates, p99, cpu)))
    return Measured(values, len(steps_us), steps_us, ["shm"] * len(rates))


def test_above_one_is_better_in_every_metric() -> None:
    stock = measured([100.0, 110, 90, 100, 100, 100], [0.02] * 6, [1000.0] * 98 + [9000.0] * 2)
    ours = measured([200.0, 210, 190, 200, 200, 150], [0.01] * 6, [500.0] * 99 + [80000.0])
    rows = rows_of("session", {Case("grpc", "fused", 2): stock, Case("x", "fused", 2): ours})
    assert [row["ratio"] for row in rows] == [1.0, 1.0, 1.0, 2.0, 18.0, 2.0]
    assert [row["value"] for row in rows[3:]] == [200.0, 500.0, 0.01]
    assert rows[3]["ratio_interval"] == [1.5, 2.111]
    assert rows[5]["ratio_interval"] == [2.0, 2.0]


def test_the_percentile_is_a_value_that_was_measured() -> None:
    values = [float(i) for i in range(1, 201)]
    assert percentile(values, 99) == 198.0
    assert percentile(values, 50) == 100.0
    assert percentile([3.0, 1.0, 2.0], 99) == 3.0


def test_arguments_that_cannot_work_are_refused(log: Path) -> None:
    with pytest.raises(ArtfError, match="no mix 'dlrm'") as caught:
        recommender.run(HERE, ["grpc"], ["dlrm"])
    assert "wide-deep" in caught.value.cure
    with pytest.raises(ArtfError, match="nothing to measure"):
        recommender.run(HERE, ["grpc"], workers=[0])
    with pytest.raises(ArtfError, match="nothing to measure"):
        recommender.run(HERE, [])
    with pytest.raises(ArtfError, match="MiB of memory"):
        recommender.run(HERE, ["grpc"], workers=[100_000])
    with pytest.raises(ArtfError, match="grpc/4channels"):
        recommender.run(HERE, ["grpc/4channels"], api="strategy")
    with pytest.raises(ArtfError, match="grpc@upstream"):
        recommender.run(HERE, ["grpc@upstream"])
