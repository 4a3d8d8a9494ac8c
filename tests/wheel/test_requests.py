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
from common.lacking import cannot_be_had
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
#: Of one request, as Soft-RoCE takes them.
_LARGEST_REQUEST = 8 * _MIB
#: Tensors come from the arena, which is registered, from this size on.
_IN_ARENA = 16 * _KIB


@pytest.fixture(scope="module")
def all_rows(
    wheel: Path, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> list[dict[str, Any]]:
    """Of each protocol and size, in order; skips where no virtual host boots, but in CI."""
    folder = tmp_path_factory.mktemp("requests")
    settings = {
        "python": str(venv.make(wheel)),
        "protocols": ["grpc+ar/verbs", "grpc+verbs"],
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
        cannot_be_had(str(error))
    assert done.status == 0, done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads((folder / "rows.json").read_text())
    if pytestconfig.getoption("--record-requests"):
        figures.write(figures.FOLDER / "requests.json", found, made)
    return found


@pytest.fixture
def rows(all_rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of grpc+ar."""
    return [row for row in all_rows if row["protocol"] == "grpc+ar"]


@pytest.fixture
def written(all_rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of grpc+verbs."""
    return [row for row in all_rows if row["protocol"] == "grpc+verbs"]


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
    """For each part of a READ, all of one size; the message releases the tensor.

    The size follows from what the server measured when it started: a power of two, up to what a
    device takes.
    """
    largest = max(reading(rows), key=lambda row: row["bytes"])
    part = largest["bytes"] * STEPS // largest["worker"]["requests"]["read"]
    assert part in {_LARGEST_REQUEST >> shift for shift in range(6)}
    for row in reading(rows):
        parts = -(-row["bytes"] // part)
        assert row["worker"]["requests"]["read"] == STEPS * parts
        assert row["worker"]["frames"]["message"] == STEPS
        assert row["ps"]["frames"].get("message", 0) == 0
    for row in rows:
        if row not in reading(rows):
            assert row["worker"]["frames"].get("message", 0) == 0


def test_all_requests_are_known(rows: list[dict[str, Any]]) -> None:
    """Two kinds of requests, and every SEND is a frame that is counted by its kind."""
    for row in rows:
        assert set(row["worker"]["requests"]) <= {"send", "read"}
        assert set(row["ps"]["requests"]) == {"send"}
        for task in ("worker", "ps"):
            counted = row[task]
            assert sum(counted["frames"].values()) == counted["requests"]["send"]
            assert set(counted["frames"]) <= {"data", "message", "credits"}
            # A call without a tensor, and its answer, are small enough.
            assert counted["inline"]["send"] >= STEPS
            # Each step is at least a call and its answer.
            assert counted["http2"]["HEADERS"] >= STEPS
            assert counted["http2"]["DATA"] >= STEPS
            # Of the first frames each fourth one's completion is asked for, later each eighth's.
            assert counted["signaled"]["send"] <= counted["requests"]["send"] / 4 + 1


def test_a_cleanup_is_no_call_of_its_own(rows: list[dict[str, Any]]) -> None:
    """RunGraph, and RecvTensor where there is a tensor: a SEND each, and one for its release."""
    for row in rows:
        calls = 2 if row["bytes"] else 1
        sends = STEPS * (calls + (1 if row in reading(rows) else 0))
        # Some steps are further apart than the time that a cleanup waits for the next one.
        assert sends <= row["worker"]["requests"]["send"] < sends + STEPS / 2


def test_grpc_verbs_writes_each_tensor_once(written: list[dict[str, Any]]) -> None:
    """A step is a WRITE and a note behind it, whose size is the tensor's; nothing goes back."""
    assert [row["bytes"] for row in written] == list(SIZES)
    for row in written:
        size, ps = row["bytes"], row["ps"]
        parts = -(-size // _LARGEST_REQUEST)
        assert ps["requests"].get("write", 0) == STEPS * parts
        assert ps["bytes"].get("write", 0) == STEPS * size
        notes = ps["frames"].get("message", 0)
        # And what shows the other end, now and then, that this one lives.
        assert STEPS * (size > 0) <= notes <= STEPS * (size > 0) + 10
        assert "write" not in row["worker"]["requests"]
        assert "read" not in {**row["worker"]["requests"], **ps["requests"]}


def test_grpc_verbs_registers_nothing_in_a_step(written: list[dict[str, Any]]) -> None:
    """Sources in the arena are registered already, and smaller ones are copied."""
    for row in written:
        # What the arena hands out for the first time is registered aside, once.
        assert max(row[task]["registrations"] for task in ("ps", "worker")) <= STEPS / 10
        looked = row.get("looked_at", {"written": 0, "from_source": 0, "looks": 0})
        assert looked["written"] == looked["looks"] * row["bytes"]
        if row["bytes"] >= _IN_ARENA:
            assert looked["from_source"] == looked["written"]
