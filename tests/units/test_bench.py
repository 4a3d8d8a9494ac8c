"""The recv driver over tasks that need no TensorFlow: turns, medians, ratios, sizes."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fake_tasks import make_runtime
from rich.console import Console

from artf_cli import cluster
from artf_cli.bench import allreduce, figures, recommender, recv, table
from artf_cli.bench.recv import Row, Samples, rows_of
from artf_cli.bench.sizes import EMPTY, Size, apart, parse_size
from artf_cli.console import out
from artf_cli.errors import ArtfError
from artf_cli.supervise import Group

HERE = Path(sys.executable)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARTF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setattr(cluster, "_RUNTIME", make_runtime(tmp_path / "runtime"))
    monkeypatch.setattr(recv, "_PAUSE_S", 0.0)
    # The fake tasks have no TensorFlow to load.
    monkeypatch.setattr(recv, "PROCESS_BYTES", 0)
    return tmp_path / "log"


def measure(*protocols: str, sizes: tuple[str, ...] = ("8",), **more: Any) -> list[Row]:
    settings: dict[str, Any] = {"rounds": 1, "cold_rounds": 0, "progress": False, **more}
    return recv.run(HERE, protocols, sizes, **settings)


def test_protocols_take_turns_and_rows_have_the_contracts_fields(log: Path) -> None:
    rows = measure("grpc", "grpc+x", sizes=("4", "2x1KiB"), rounds=3)
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
    assert all(set(row) == set(Row.__annotations__) for row in rows)
    spent, per_gb = rows[0]["cpu_us_per_step"], rows[0]["cpu_s_per_gb"]
    # Three bursts of three steps, and the CPU clock has no ticks.
    assert spent is not None
    assert per_gb == pytest.approx(spent / 4 * 1e3, rel=0.1)
    assert {**rows[0], "cpu_us_per_step": 0, "cpu_s_per_gb": 0} == {
        "bench": "recv",
        "protocol": "grpc",
        "wheel": "built",
        "api": "session",
        "metric": "step",
        "bytes": 4,
        "tensors": 1,
        "fabric": "tcp",
        "median_us": 32.0,
        "samples_us": [32.0, 32.0, 32.0],
        "spread": [0.0, 0.0],
        "ratio": 1.0,
        "ratio_interval": None,
        "against": None,
        "against_interval": None,
        "cpu_us_per_step": 0,
        "cpu_s_per_gb": 0,
    }
    assert (rows[3]["protocol"], rows[3]["bytes"], rows[3]["tensors"]) == ("grpc+x", 1024, 2)
    assert rows[3]["ratio"] == 4.0


def test_an_empty_step_moves_nothing(log: Path) -> None:
    (row,) = measure("grpc", sizes=("empty",))
    assert (row["bytes"], row["tensors"], row["median_us"]) == (0, 0, 40.0)
    assert row["cpu_us_per_step"] is not None
    assert row["cpu_s_per_gb"] is None


def test_cold_steps_come_after_a_pause_small_before_large(log: Path) -> None:
    rows = measure("grpc", "grpc+x", sizes=("1000", "4", "900"), cold_rounds=2)
    done = [line.split() for line in log.read_text().splitlines() if line.startswith("cold")]
    # 1000 is no sixteen times 900: it takes a pause of its own.
    first = [["cold", size, name] for size in ("4", "900", "1000") for name in ("grpc", "grpc+x")]
    second = [["cold", size, name] for size in ("4", "900", "1000") for name in ("grpc+x", "grpc")]
    assert done == first + second
    assert [row["metric"] for row in rows] == ["step"] * 6 + ["cold"] * 6
    cold = rows[6]
    assert (cold["bytes"], cold["samples_us"], cold["ratio"]) == (1000, [100000.0] * 2, 1.0)
    assert cold["cpu_us_per_step"] is None


def test_memory_that_stays_warm_is_an_error(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_WARM", "4096")
    monkeypatch.setattr(recv, "_MOST_PAUSE_S", 0.0)
    with pytest.raises(ArtfError, match="grpc keeps 4096 free bytes after 0 idle seconds"):
        measure("grpc", cold_rounds=1)


def test_a_round_whose_bytes_take_another_path_is_an_error(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LOST", "2")
    said = "8 B over grpc took the path unknown in round 2, tcp before"
    with pytest.raises(ArtfError, match=said):
        measure("grpc", rounds=3)
    assert log.read_text().splitlines() == ["burst 8 grpc"] * 2


def test_each_round_can_have_servers_of_its_own(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_LOST", "2")  # of one server's bursts, of which none has a second
    rows = measure("grpc", "grpc+x", rounds=5, cold_rounds=1, fresh=True)
    done = [line.split() for line in log.read_text().splitlines()]
    both, turned = ["grpc", "grpc+x"], ["grpc+x", "grpc"]
    # Each order of starting with each order of the round: both matter, and neither decides.
    expected = [
        ([["burst", "8", name] for name in order], [["check", "8", name] for name in started])
        for order, started in zip(
            (both, turned, both, turned, both), (both, both, turned, turned, both)
        )
    ]
    cold = [["cold", "8", name] for name in both]
    *others, (last, checked) = expected
    assert (
        done == [line for each in others for part in each for line in part] + last + cold + checked
    )
    assert [(row["metric"], row["protocol"], len(row["samples_us"])) for row in rows] == [
        ("step", "grpc", 5),
        ("step", "grpc+x", 5),
        ("cold", "grpc", 1),
        ("cold", "grpc+x", 1),
    ]


def test_the_untouched_wheel_takes_part_when_its_python_is_given(log: Path) -> None:
    rows = measure("grpc", wheels={"upstream": HERE})
    assert [(row["protocol"], row["wheel"]) for row in rows] == [
        ("grpc", "built"),
        ("grpc@upstream", "upstream"),
    ]
    # It speaks plain grpc to its own server.
    assert {line.split()[2] for line in log.read_text().splitlines()} == {"grpc"}


def test_an_older_wheel_runs_every_protocol(log: Path) -> None:
    rows = measure("grpc", "grpc+x", rounds=6, wheels={"against": HERE})
    assert [(row["protocol"], row["wheel"], row["against"]) for row in rows] == [
        ("grpc", "built", 1.0),
        ("grpc+x", "built", 1.0),
        ("grpc@against", "against", None),
        ("grpc+x@against", "against", None),
    ]
    assert rows[1]["against_interval"] == [1.0, 1.0]
    # One stock for all: that of the wheel in question.
    assert [row["ratio"] for row in rows] == [1.0, 4.0, 1.0, 4.0]
    with out.capture() as capture:
        table.render(rows)
    assert "against the" in capture.get()


def test_pinned_tasks_have_cores_of_their_own(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("two cores are needed")
    with Group(tmp_path) as group:
        made = cluster.Cluster(group, HERE, "recv_worker.py", "grpc", workers=1)
        made.serve()
        made.pin()
        half = len(cores) // 2
        own = [set(cores[:half]), set(cores[half : 2 * half])]
        assert [os.sched_getaffinity(made.pid(task)) for task in made.tasks] == own
        with monkeypatch.context() as patched:
            patched.setattr(os, "sched_getaffinity", lambda _: {cores[0]})
            with pytest.raises(ArtfError, match="2 tasks cannot have a core each of 1"):
                made.pin()
        cluster.leave_all(group, [made])
    pinned: list[str] = []
    monkeypatch.setattr(cluster.Cluster, "pin", lambda self: pinned.append(self.variant.label))
    measure("grpc", "grpc+x")
    assert pinned == []
    measure("grpc", "grpc+x", pin=True)
    assert pinned == ["grpc", "grpc+x"]


def test_variants_are_told_to_their_processes(log: Path) -> None:
    rows = measure("grpc", "grpc+ar/tcp")
    assert [row["protocol"] for row in rows] == ["grpc", "grpc+ar/tcp"]
    assert {line.split()[2] for line in log.read_text().splitlines()} == {"grpc", "grpc+ar"}


def test_without_stock_grpc_there_is_no_ratio(log: Path) -> None:
    (row,) = measure("grpc+x")
    assert row["ratio"] is None
    table.render([row])


def in_80_columns(
    module: ModuleType,
    render: Callable[[Any], None],
    rows: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """What `render` prints to the console of `module`, as wide as rich makes it off a terminal."""
    written = io.StringIO()
    monkeypatch.setattr(module, "out", Console(file=written, width=80))
    render(rows)
    return written.getvalue()


def test_a_table_cuts_nothing_off_where_output_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = Size(1 << 16, 32)
    ours, old = (
        Samples("shm", [median + k for k in range(8)], cpu_s=0.12, steps=1000)
        for median in (640.0, 648.0)
    )
    rows = rows_of({("grpc+ar/tcp", size): ours, ("grpc+ar/tcp@against", size): old})
    text = in_80_columns(table, table.render, rows, monkeypatch)
    assert "…" not in text
    words = text.split()
    low, high = rows[0]["against_interval"] or []
    for whole in ("grpc+ar/tcp", "32x64", "644", "1.01x", f"({low:.2f}-{high:.2f})", "120"):
        assert whole in words, f"{whole} is not whole in\n{text}"


@pytest.mark.parametrize(
    ("name", "module", "render"),
    [
        ("recv", table, table.render),
        ("recv-mpi", table, table.render),
        ("train", table, table.render_train),
        ("recommender", recommender, recommender.render),
        ("allreduce", allreduce, allreduce.render),
    ],
)
def test_the_tables_of_the_docs_figures_fit_into_80_columns(
    name: str, module: ModuleType, render: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = json.loads((figures.FOLDER / f"{name}.json").read_text())["rows"]
    lines = in_80_columns(module, render, rows, monkeypatch).splitlines()
    assert len(lines) > len({row["protocol"] for row in rows})
    assert not [line for line in lines if "…" in line]
    assert max(len(line) for line in lines) <= 80


def test_pairs_of_rounds_give_the_ratio_and_its_interval() -> None:
    size = Size(4)
    stock = Samples("tcp", [10.0, 100.0, 20.0], cpu_s=0.5, steps=10**6)
    other = Samples("shm", [5.0, 4.0, 90.0], cpu_s=2.0, steps=10**6)
    rows = rows_of({("grpc", size): stock, ("x", size): other})
    assert [row["cpu_us_per_step"] for row in rows] == [0.5, 2.0]
    assert [row["cpu_s_per_gb"] for row in rows] == [125.0, 500.0]
    assert [row["median_us"] for row in rows] == [20.0, 5.0]
    assert [row["ratio"] for row in rows] == [1.0, 2.0]
    assert rows[1]["ratio_interval"] is None
    assert rows[1]["spread"] == [-0.2, 17.0]
    assert rows[1]["samples_us"] == [5.0, 4.0, 90.0]
    stock.steps_us, other.steps_us = [10.0, 20.0] * 3, [5.0, 5.0] * 3
    assert rows_of({("grpc", size): stock, ("x", size): other})[1]["ratio_interval"] == [2.0, 4.0]


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
        (" Empty", EMPTY),
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
    assert [str(Size(*s)) for s in ((0, 0), (4,), (1000,), (65536, 32), (1 << 30,))] == [
        "empty",
        "4 B",
        "1000 B",
        "32x64 KiB",
        "1 GiB",
    ]


def test_sizes_of_a_pause_lie_apart() -> None:
    groups = apart(parse_size(text) for text in recv.DEFAULT_SIZES)
    assert [[str(size) for size in group] for group in groups] == [
        ["empty", "4 B", "1 KiB", "64 KiB", "1 MiB", "16 MiB", "256 MiB"],
        ["32x64 KiB", "64 MiB"],
    ]


def test_arguments_that_cannot_work_are_refused(log: Path) -> None:
    with pytest.raises(ArtfError, match="grpc@upstream has no wheel"):
        measure("grpc@upstream")
    with pytest.raises(ArtfError, match="nothing to measure"):
        measure("grpc", sizes=())
    with pytest.raises(ArtfError, match="MiB of memory"):
        measure("grpc", sizes=("9999x1024GiB",))


def test_render_shows_sizes_paths_and_ratios() -> None:
    size = Size(16 << 20)
    stock = Samples("tcp", [9700.0] * 6, [12000.0], cpu_s=0.02, steps=1)
    ours = Samples("shm", [1000.0, 940.0] * 3, [4000.0], cpu_s=0.0034, steps=2)
    with out.capture() as capture:
        table.render(rows_of({("grpc", size): stock, ("grpc+ar", size): ours}))
    text = capture.get()
    for word in ("16 MiB", "grpc+ar", "shm", "9.7 ms", "970 µs", "10.0x", "(9.70-10.3)"):
        assert word in text
    for word in ("-3% +3%", "20.0 ms", "1.7 ms", "cold", "3.00x", "95% interval"):
        assert word in text
