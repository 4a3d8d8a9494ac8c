"""What a transfer over RDMA tells the device, by size, counted by a libibverbs of the tests'."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from artf_cli import venv
from artf_cli.bench import figures, record
from artf_cli.errors import ArtfError
from artf_cli.paths import REPO
from common import cpp
from rdma_host import machine
from rdma_host.machine import Guest, Link

# Two TensorFlow processes on one slow processor.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_PROGRAM = REPO / "tests/wheel/programs/count_requests.py"
_COMMAND = "scripts/artf test --only wheel -- --run-slow --record-requests -k requests"
_KIB, _MIB = 1 << 10, 1 << 20
SIZES = (0, 4, _KIB, 16 * _KIB, 64 * _KIB, 256 * _KIB, _MIB, 4 * _MIB, 16 * _MIB)
STEPS = 20
_MEMORY_MB = 4096
#: What a step's calls take in gRPC's stream, without a tensor's bytes.
_CALLS = 2048
#: Of one READ request, as Soft-RoCE takes them.
_LARGEST_READ = 8 * _MIB


@pytest.fixture(scope="module")
def rows(
    wheel: Path, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> list[dict[str, Any]]:
    """Of each size, in order; skips where no virtual host boots, but in CI."""
    folder = tmp_path_factory.mktemp("requests")
    settings = {
        "python": str(venv.make(wheel)),
        "library": str(cpp.shared("tests/verbs/counting_verbs")),
        "sizes": SIZES,
        "steps": STEPS,
        "result": str(folder / "rows.json"),
    }
    made = record.record(wheel, _COMMAND.split())
    environment = {**os.environ, "PYTHONPATH": str(REPO / "scripts")}
    guest = Guest(
        [sys.executable, str(_PROGRAM), json.dumps(settings)], environment, shared=[folder]
    )
    try:
        (done,) = machine.run([guest], Link(), memory_mb=_MEMORY_MB, timeout_s=700)
    except ArtfError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    assert done.status == 0, done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads((folder / "rows.json").read_text())
    if pytestconfig.getoption("--record-requests"):
        record.write(figures.FOLDER / "requests.json", found, made)
    return found


def reading(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows whose tensors are read by the device."""
    return [row for row in rows if row["worker"]["requests"].get("read")]


def test_from_the_rendezvous_size_up_nothing_is_copied(rows: list[dict[str, Any]]) -> None:
    """Every byte is read from the variable's own bytes into its place in the received tensor."""
    read = [row["bytes"] for row in reading(rows)]
    assert {_MIB, 4 * _MIB, 16 * _MIB} <= set(read)
    assert read == [size for size in SIZES if size >= min(read)]
    for row in reading(rows):
        looked = row["looked_at"]
        assert looked["read"] == looked["direct"] == looked["looks"] * row["bytes"]
        # Nor did the bytes take another way beside it.
        assert row["worker"]["bytes"]["read"] == STEPS * row["bytes"]
        for task in ("worker", "ps"):
            assert row[task]["bytes"]["send"] < STEPS * _CALLS


def test_smaller_ones_go_in_the_stream(rows: list[dict[str, Any]]) -> None:
    small = [row for row in rows if row not in reading(rows)]
    assert {0, 4, _KIB} <= {row["bytes"] for row in small}
    for row in small:
        assert STEPS * row["bytes"] <= row["ps"]["bytes"]["send"]
        assert row["ps"]["bytes"]["send"] < STEPS * (1.1 * row["bytes"] + _CALLS)
        assert row["worker"]["bytes"]["send"] < STEPS * _CALLS


def test_a_read_takes_one_request_and_one_message(rows: list[dict[str, Any]]) -> None:
    """For each part of a READ that the device takes; the message releases the tensor."""
    for row in reading(rows):
        parts = -(-row["bytes"] // _LARGEST_READ)
        assert row["worker"]["requests"]["read"] == STEPS * parts
        assert row["worker"]["frames"]["message"] == STEPS
        assert row["ps"]["frames"].get("message", 0) == 0
    for row in rows:
        if row not in reading(rows):
            assert row["worker"]["frames"].get("message", 0) == 0


def test_all_requests_are_known(rows: list[dict[str, Any]]) -> None:
    """One path, two kinds of requests, and every SEND is a frame that is counted by its kind."""
    for row in rows:
        assert row["fabric"] == "verbs"
        assert set(row["worker"]["requests"]) <= {"send", "read"}
        assert set(row["ps"]["requests"]) == {"send"}
        for task in ("worker", "ps"):
            counted = row[task]
            assert sum(counted["frames"].values()) == counted["requests"]["send"]
            assert set(counted["frames"]) <= {"data", "message", "credits"}
            # Each step is at least a call and its answer.
            assert counted["http2"]["HEADERS"] >= STEPS
            assert counted["http2"]["DATA"] >= STEPS
            # Of the first frames each fourth one's completion is asked for, later each eighth's.
            assert counted["signaled"]["send"] <= counted["requests"]["send"] / 4 + 1
