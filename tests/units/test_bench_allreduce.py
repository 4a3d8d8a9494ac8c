"""The all-reduce driver over tasks that need no TensorFlow: turns, counts, paths, ratios."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from fake_tasks import make_runtime

from artf_cli import cluster
from artf_cli.bench import allreduce
from artf_cli.bench.allreduce import Case, ring_carrier, rows_of
from artf_cli.console import out
from artf_cli.errors import ArtfError

HERE = Path(sys.executable)
_TASK = """
import os
from task import Task

class Fake(Task):
    received = 0

    def do_serve(self, cluster, job, index, protocol):
        self.take_place(cluster, index)
        self.protocol = protocol
        self.workers = len(cluster[job])

    def do_report(self):
        fabrics = {f"worker:{(self.index - 1) % self.workers}": "shm"}
        return {"connections": [], "fabrics": fabrics, "fabric_bytes_received": self.received}

    def log(self, *words):
        if self.index == 0:
            with open(os.environ["FAKE_LOG"], "a") as log:
                print(*words, self.workers, self.protocol, file=log)

    def do_case(self, size):
        pass

    def do_check(self, size):
        self.log("check", size)

    def do_burst(self, size, steps):
        self.log("burst", size, steps)
        self.received += 2 * (self.workers - 1) * size * steps // self.workers
        # A step takes 30 ms at the first worker, 10 more at each other; over stock twice as long.
        us = (2 if self.protocol == "grpc" else 1) * 1000.0 * (30 + 10 * self.index)
        return {"samples_us": [us] * steps}

Fake().serve_commands()
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    runtime = make_runtime(tmp_path / "runtime")
    (runtime / "all_reduce_worker.py").write_text(_TASK)
    monkeypatch.setenv("ARTF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setattr(cluster, "_RUNTIME", runtime)
    return tmp_path / "log"


def test_protocols_take_turns_and_all_workers_do_as_many(log: Path) -> None:
    rows = allreduce.run(HERE, ["grpc", "grpc+x"], ["12KiB"], [2, 3], rounds=2, progress=False)
    lines = log.read_text().splitlines()
    # Of two workers a step takes 70 and 35 ms: 4 and 7 fill a burst of 250 ms.
    turns = [("4", "grpc"), ("7", "grpc+x")]
    expected = []
    for _, name in turns:
        expected += [f"check 12288 2 {name}", f"burst 12288 3 2 {name}"]
    for steps, name in turns + turns[::-1]:
        expected += [f"burst 12288 1 2 {name}", f"burst 12288 {steps} 2 {name}"]
    expected += [f"check 12288 2 {name}" for _, name in turns]
    assert lines[: len(expected)] == expected
    assert [(row["workers"], row["protocol"]) for row in rows] == [
        (count, name) for count in (2, 3) for _, name in turns
    ]
    assert rows[1] == {
        "bench": "allreduce",
        "api": "strategy",
        "protocol": "grpc+x",
        "workers": 2,
        "bytes": 12288,
        "tensors": 1,
        "fabric": "shm",
        "median_us": 35000.0,
        "samples_us": [35000.0, 35000.0],
        "algorithm_gb_per_s": 0.0003511,
        "ratio": 2.0,
        "ratio_interval": None,
    }
    assert rows[3]["median_us"] == 40000.0
    with out.capture() as capture:
        allreduce.render(rows)
    for word in ("12 KiB", "shm", "35.0 ms", "2.00x"):
        assert word in capture.get()


def test_the_interval_is_of_paired_rounds() -> None:
    samples = {Case("grpc", 4, 2): [10.0] * 6, Case("x", 4, 2): [5.0, 4, 5, 5, 5, 8]}
    rows = rows_of(samples, {case: ["tcp", "shm"] for case in samples})
    assert (rows[1]["ratio"], rows[1]["ratio_interval"], rows[1]["fabric"]) == (
        2,
        [1.25, 2.5],
        "shm,tcp",
    )


@pytest.mark.parametrize("steps", [(-1,), (1,), (-1, 1)])
def test_a_ring_carries_every_chunk_but_its_own_twice_to_each_worker(
    steps: tuple[int, ...],
) -> None:
    """Whichever way round it goes."""

    def report(received: int) -> dict[str, Any]:
        return {
            f"worker:{i}": {
                "connections": [],
                "fabrics": {f"worker:{(i + step) % 4}": "shm" for step in steps},
                "fabric_bytes_received": received,
            }
            for i in range(4)
        }

    assert ring_carrier(report(0), report(1500), 1000) == "shm"
    assert ring_carrier(report(0), report(1499), 1000) == "unknown"


def test_a_ring_over_tcp_counts_what_goes_either_way() -> None:
    def report(there: int, back: int) -> dict[str, Any]:
        """Of three workers, of which the first and the last two are connected."""
        ends = [("0", "1", there), ("1", "0", back), ("1", "2", there), ("2", "1", back)]
        return {
            f"worker:{i}": {
                "connections": [
                    {"local": own, "remote": peer, "inode": int(own + peer), "bytes_sent": sent}
                    for own, peer, sent in [(f"{o}{p}", f"{p}{o}", s) for o, p, s in ends]
                    if own[0] == str(i)
                ],
                "fabrics": {},
                "fabric_bytes_received": 0,
            }
            for i in range(3)
        }

    assert ring_carrier(report(10, 10), report(1010, 1010), 1000) == "tcp"
    assert ring_carrier(report(10, 10), report(1010, 1009), 1000) == "unknown"


def test_arguments_that_cannot_work_are_refused(log: Path) -> None:
    for arguments, named in (
        ({"sizes": ["6"]}, "'6' is no size of one tensor"),
        ({"sizes": ["2x4"]}, "'2x4' is no size of one tensor"),
        ({"workers": [1]}, "two workers"),
        ({"sizes": []}, "nothing to measure"),
        ({"sizes": ["900GiB"]}, "MiB of memory"),
        ({"protocols": ["grpc/threads"]}, "grpc/threads"),
    ):
        with pytest.raises(ArtfError, match=named):
            allreduce.run(HERE, **arguments)  # type: ignore[arg-type]
