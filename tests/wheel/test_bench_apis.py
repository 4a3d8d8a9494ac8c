"""Short runs of the benches on the wheel: sums and values hold, bytes take the fabric's path."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from artf_cli import venv
from artf_cli.bench import allreduce, recommender, recv


@pytest.fixture(scope="module")
def python(wheel: Path) -> Path:
    return venv.make(wheel)


@pytest.mark.parametrize("api", ["session", "strategy"])
def test_a_recommenders_step(python: Path, api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommender, "_BURST_S", 0.1)
    mixes = ["empty", "wide-deep"]
    rows = recommender.run(python, ["grpc+ar"], mixes, [1], rounds=1, api=api, progress=False)
    assert [(row["scheme"], row["metric"], row["fabric"]) for row in rows] == [
        *(("empty", metric, "none") for metric in recommender.METRICS[:2]),
        *(("wide-deep", metric, "shm") for metric in recommender.METRICS),
    ]
    assert all(row["value"] > 0 and row["api"] == api for row in rows)


def test_transfers_through_a_strategy(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recv, "_BURST_S", 0.1)
    sizes = ["empty", "4", "4x1MiB"]
    rows = recv.run(
        python, ["grpc+ar"], sizes, rounds=1, cold_rounds=0, api="strategy", progress=False
    )
    assert [(row["bytes"], row["tensors"], row["fabric"], row["api"]) for row in rows] == [
        (size, tensors, "shm", "strategy") for size, tensors in ((0, 0), (4, 1), (1 << 20, 4))
    ]


def test_all_reduces_of_two_workers(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allreduce, "_BURST_S", 0.1)
    rows = allreduce.run(python, ["grpc+ar"], ["1KiB", "1MiB"], [2], rounds=1, progress=False)
    assert [(row["bytes"], row["fabric"]) for row in rows] == [(1 << 10, "shm"), (1 << 20, "shm")]
    assert all(row["median_us"] > 10 and row["algorithm_gb_per_s"] > 0 for row in rows)


_LOSSES = """
import json, recommender, tensorflow as tf

model = recommender.Model(
    [4096, 2048, 4000], 2, [1024, 2048], lambda _, first: tf.Variable(first())
)
def wrong(steps):
    return model.wrong(tf.constant(steps, tf.int64)).numpy().tolist()

found = []
for _ in range(3):
    model.step()
found += [wrong(3), wrong(2)]
column, counts = model.variables[1], model.variables[3]
column.assign(tf.tensor_scatter_nd_sub(column, [[7]], [2.0]))
counts.scatter_sub(tf.IndexedSlices(tf.constant([1], tf.int64), tf.constant([5], tf.int64)))
print(json.dumps([*found, wrong(3)]))
"""


def test_an_update_that_is_lost_is_seen(python: Path) -> None:
    runtime = Path(recommender.__file__).parents[1] / "runtime"
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
    command = [str(python), "-c", _LOSSES]
    done = subprocess.run(command, cwd=runtime, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # For each of three columns, of which two are updated, and for the 257 counts of ids.
    assert json.loads(done.stdout) == [[0, 0, 0, 0], [1024, 512, 0, 257], [0, 1, 0, 1]]
