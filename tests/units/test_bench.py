"""The recv driver over tasks that need no TensorFlow: turns, medians, ratios, sizes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fake_tasks import make_runtime

from artf_cli import cluster
from artf_cli.bench import recv
from artf_cli.bench.recv import Size, Spent, parse_size, rows_of
from artf_cli.console import out
from artf_cli.errors import ArtfError

HERE = Path(sys.executable)
KEYS = {
    *("bench", "protocol", "bytes", "tensors", "fabric"),
    *("median_us", "samples_us", "ratio", "cpu_s_per_gb"),
}


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARTF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setattr(cluster, "_RUNTIME", make_runtime(tmp_path / "runtime"))
    return tmp_path / "log"


def test_protocols_take_turns_and_rows_have_the_contracts_fields(log: Path) -> None:
    rows = recv.run(HERE, ["grpc", "grpc+x"], ["4", "2x1KiB"], rounds=3, progress=False)
    done = [line.split() for line in log.read_text().splitlines()]
    both, turned = ["grpc", "grpc+x"], ["grpc+x", "grpc"]
    expected = [
        ["burst", size, protocol]
        for order in (both, turned, both)
        for size in ("4", "2048")
        for protocol in order
    ]
    expected += [["check", size, protocol] for size in ("4", "2048") for protocol in both]
    assert done == expected
    assert all(set(row) == KEYS for row in rows)
    assert rows[0].pop("cpu_s_per_gb") >= 0  # type: ignore[misc]
    assert rows[0] == {
        "bench": "recv",
        "protocol": "grpc",
        "bytes": 4,
        "tensors": 1,
        "fabric": "tcp",
        "median_us": 32.0,
        "samples_us": [32.0, 32.0, 32.0],
        "ratio": 1.0,
    }
    assert (rows[3]["protocol"], rows[3]["bytes"], rows[3]["tensors"]) == ("grpc+x", 1024, 2)
    assert rows[3]["ratio"] == 4.0


def test_the_untouched_wheel_takes_part_when_its_python_is_given(log: Path) -> None:
    rows = recv.run(HERE, ["grpc"], ["8"], rounds=1, progress=False, baseline_python=HERE)
    assert [row["protocol"] for row in rows] == ["grpc", "grpc@upstream"]
    # It speaks plain grpc to its own server.
    assert {line.split()[2] for line in log.read_text().splitlines()} == {"grpc"}


def test_without_stock_grpc_there_is_no_ratio(log: Path) -> None:
    (row,) = recv.run(HERE, ["grpc+x"], ["8"], rounds=1, progress=False)
    assert row["ratio"] is None
    recv.render([row])


def test_the_ratio_is_of_medians() -> None:
    size = Size(4)
    samples = {("grpc", size): [10.0, 100.0, 20.0], ("x", size): [5.0, 4.0, 90.0]}
    spent = {("grpc", size): Spent(0.5, 10**9), ("x", size): Spent(0.5, 4 * 10**9)}
    rows = rows_of(samples, {("grpc", size): "tcp", ("x", size): "shm"}, spent)
    assert [row["cpu_s_per_gb"] for row in rows] == [0.5, 0.125]
    assert [row["median_us"] for row in rows] == [20.0, 5.0]
    assert [row["ratio"] for row in rows] == [1.0, 4.0]
    assert rows[1]["samples_us"] == [5.0, 4.0, 90.0]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4", Size(4)),
        ("4B", Size(4)),
        ("1KiB", Size(1024)),
        (" 64kib ", Size(65536)),
        ("256MiB", Size(256 << 20)),
        ("3GiB", Size(3 << 30)),
        ("32x64KiB", Size(65536, 32)),
    ],
)
def test_sizes(text: str, size: Size) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "x", "4 KiB", "-4", "1.5MiB", "4KB", "0x4", "4x", "x4"])
def test_wrong_sizes_are_named_with_what_is_accepted(text: str) -> None:
    with pytest.raises(ArtfError) as caught:
        parse_size(text)
    assert repr(text) in caught.value.what
    assert "32x64KiB" in caught.value.cure


def test_the_number_of_tensors_is_the_default_of_sizes_without_one() -> None:
    assert parse_size("4", tensors=8) == Size(4, 8)
    assert parse_size("2x4", tensors=8) == Size(4, 2)


def test_sizes_are_shown_as_they_are_given() -> None:
    assert [str(Size(*s)) for s in ((4,), (1000,), (65536, 32), (1 << 30,))] == [
        "4 B",
        "1000 B",
        "32x64 KiB",
        "1 GiB",
    ]


def test_arguments_that_cannot_work_are_refused(log: Path) -> None:
    with pytest.raises(ArtfError, match="grpc@upstream has no wheel"):
        recv.run(HERE, ["grpc@upstream"], ["4"])
    with pytest.raises(ArtfError, match="nothing to measure"):
        recv.run(HERE, ["grpc"], [])
    with pytest.raises(ArtfError, match="MiB of memory"):
        recv.run(HERE, ["grpc"], ["9999x1024GiB"])


def test_render_shows_sizes_paths_and_ratios() -> None:
    size = Size(16 << 20)
    spent = {("grpc", size): Spent(1.25, 10**9), ("grpc+ar", size): Spent(0.2, 10**9)}
    samples = {("grpc", size): [9700.0, 9700.0], ("grpc+ar", size): [1000.0, 940.0]}
    rows = rows_of(samples, {("grpc", size): "tcp", ("grpc+ar", size): "shm"}, spent)
    with out.capture() as capture:
        recv.render(rows)
    text = capture.get()
    for word in ("16 MiB", "grpc+ar", "shm", "9.7 ms", "970 µs", "10.00x", "-3% … +3%", "1.25"):
        assert word in text
