"""Tables of docs made from raw rows, and all parts measured by one command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from artf_cli.bench import everything, figures, record, recv, train
from artf_cli.bench.recv import Samples
from artf_cli.bench.sizes import EMPTY, Size
from artf_cli.errors import ArtfError

FILES = {"recv": "recv.json", "recv-cpu": "recv.json", "recv-cold": "recv.json"}
FILES["train"] = "train.json"
PAGE = "\n".join(
    f"<!-- {kind}: {name} -->\nstale\n| 1 |\n<!-- end -->\n"
    for kind, names in (("record", ("recv.json", "train.json")), ("table", FILES))
    for name in names
)


def made(wheel: Path) -> record.Record:
    return {
        **record.record(wheel, ["scripts/artf", "bench", "all"]),
        "commit": "0123456789abcdef-dirty",
        "cpu": "A CPU",
        "cores": {"usable": 2, "quota": 1.5},
        "memory_bytes": 8 << 30,
        "kernel": "6.1.0",
        "glibc": "2.36",
        "date": "2026-11-22T12:00:00Z",
        "load": [0.25, 1.0, 1.0],
    }


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "x.whl"
    path.write_bytes(b"a wheel")
    return path


@pytest.fixture
def folder(tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tables = {name: (file, figures.TABLES[name][1]) for name, file in FILES.items()}
    monkeypatch.setattr(figures, "TABLES", tables)
    samples = {
        ("grpc", EMPTY): Samples("tcp", [500.0] * 6, [900.0] * 6, 0.003, 6),
        ("grpc+ar", EMPTY): Samples("shm", [250.0] * 6, [300.0] * 6, 0.0015, 6),
        ("grpc", Size(1 << 20)): Samples("tcp", [1000.0] * 6, [1800.0] * 6, 0.006, 6),
        ("grpc+ar", Size(1 << 20)): Samples("shm", [400.0, 500.0] * 3, [600.0] * 6, 0.003, 6),
    }
    trained = [
        train.Trained("grpc", [200.0] * 6, 0.98, 1, {"worker:0": "tcp"}),
        train.Trained("grpc+ar", [230.0, 250.0] * 3, 0.975, 1, {"worker:0": "shm"}),
    ]
    record.write(tmp_path / "raw/recv.json", recv.rows_of(samples), made(wheel))
    record.write(tmp_path / "raw/train.json", train.rows_of(trained), made(wheel))
    return tmp_path / "raw"


def test_rows_and_their_tables_are_written_together(
    folder: Path, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a run that is cut short leaves rows that the page does not show."""
    page = tmp_path / "measured.md"
    page.write_text(PAGE)
    for name, value in {"FOLDER": folder, "PAGE": page, "PAGES": (page,)}.items():
        monkeypatch.setattr(figures, name, value)
    rows, _ = record.read(folder / "recv.json")
    figures.write(tmp_path / "elsewhere" / "recv.json", rows[:1], made(wheel))
    assert page.read_text() == PAGE
    figures.write(folder / "recv.json", rows, made(wheel))
    assert page.read_text() == figures.render(PAGE, folder, page)
    assert "stale" not in page.read_text()


def test_tables_come_from_rows(folder: Path, wheel: Path) -> None:
    text = figures.render(f"above\n{PAGE}below\n", folder)
    assert text.startswith("above\n<!-- record: recv.json -->\n[recv.json](measured/recv.json)")
    assert text.endswith("<!-- end -->\nbelow\n")
    assert "stale" not in text
    expected = """<!-- table: recv -->
|  | `grpc` (tcp) | `grpc+ar` (shm) |
| --- | --- | --- |
| empty | 500 µs | 2.00 (2.00–2.00) |
| 1 MiB | 1.0 ms | 2.25 (2.00–2.50) |
<!-- end -->
"""
    assert expected in text
    assert "| 1 MiB | 1.8 ms | 3.00 (3.00–3.00) |" in text
    assert "| 1 MiB | 1.0 ms | 500 µs |" in text
    assert "| `grpc+ar` | shm | 240 | -4% +4% | 1.20 (1.15–1.25) | 97.5% |" in text
    sha = record.wheel_record(wheel)["sha256"][:12]
    assert (
        "`scripts/artf bench all`, 2026-11-22, commit 0123456789ab with changes, "
        f"wheel {sha}; A CPU, 2 cores limited to 1.5, 8 GiB, Linux 6.1.0, glibc 2.36; "
        "load at the start 0.25." in text
    )
    assert figures.render(text, folder) == text


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (PAGE + "| a | table |\n", r"a line outside the marks of a table: \| a \| table \|"),
        (PAGE + "<!-- table: recv -->\n", "a line outside the marks of a table: <!-- table"),
        (PAGE.replace("table: recv-cold", "table: recv-cool"), "'recv-cool' that nothing makes"),
        (PAGE.replace("<!-- table: train -->\nstale\n| 1 |\n", ""), "outside the marks"),
        (PAGE[: PAGE.index("<!-- table: train")], "no place for the table train"),
        (PAGE[PAGE.index("<!-- record: train") :], r"no place for the record recv\.json"),
    ],
)
def test_a_page_that_does_not_fit_is_refused(folder: Path, page: str, said: str) -> None:
    with pytest.raises(ArtfError, match=said):
        figures.render(page, folder)


def test_rows_without_a_record_are_refused(folder: Path) -> None:
    (folder / "recv.json").write_text('{"rows": []}\n')
    with pytest.raises(ArtfError, match=r"recv\.json has no rows with a record"):
        figures.render(PAGE, folder)


def test_rows_that_were_taken_out_are_named(folder: Path) -> None:
    (folder / "train.json").unlink()
    page = figures.render(PAGE, folder)
    assert f"<!-- record: train.json -->\n{figures.NOT_MEASURED}<!-- end -->" in page
    assert "<!-- table: train -->\n<!-- end -->" in page
    assert figures.render(page, folder) == page


def test_a_page_beside_has_tables_of_words_and_its_own_of_figures(folder: Path) -> None:
    page = next(page for page in figures.BESIDE if page.name == "protocols.md")
    (folder / "recv.json").rename(folder / "recv-mpi.json")
    names = ("record: recv-mpi.json", "table: protocols", "table: protocols-cpu")
    text = "".join(f"| words |\n<!-- {name} -->\n| 1 |\n<!-- end -->\n" for name in names)
    made = figures.render(text, folder, page)
    assert "|  | `grpc` (tcp) | `grpc+ar` (shm) |" in made
    assert "| 1 MiB | 1.0 ms | 2.25 (2.00–2.50) |" in made
    assert figures.outside(made) == "| words |\n\n" * 3
    assert figures.render(made, folder, page) == made
    with pytest.raises(ArtfError, match=r"protocols\.md has no place for the table protocols-cpu"):
        figures.render(text[: text.index("| words |\n<!-- table: protocols-cpu")], folder, page)
    with pytest.raises(ArtfError, match=r"protocols\.md has a line outside the marks"):
        figures.render(text + "<!-- table: protocols -->\n", folder, page)


def test_mixes_and_rings_have_a_line_for_each_number_of_workers() -> None:
    def row(protocol: str, workers: int, **more: Any) -> dict[str, Any]:
        common = {"fabric": "tcp", "scheme": "A", "metric": "p99_us", "value": 1500.0}
        size = {"bytes": 1 << 20, "tensors": 1, "median_us": 250.0}
        ratio = {"ratio": 2.0, "ratio_interval": [1.5, 2.5]}
        return {"protocol": protocol, "workers": workers, **common, **size, **ratio, **more}

    rows = [row(name, count) for count in (1, 2) for name in ("grpc", "grpc+ar")]
    head = "`grpc` (tcp) | `grpc+ar` (tcp) |\n| --- | --- | --- | --- |\n"
    late = "".join(f"| A | {count} | 1.5 ms | 1.5 ms |\n" for count in (1, 2))
    assert figures.recommender_p99(rows) == f"| mix | workers | {head}{late}"
    ring = "".join(f"| {count} | 1 MiB | 250 µs | 2.00 (1.50–2.50) |\n" for count in (1, 2))
    assert figures.all_reduce(rows) == f"| workers |  | {head}{ring}"
    rate = [row("grpc", 1, metric="steps_per_second", value=80.4), *rows]
    assert "| A | 1 | 80/s |" in figures.recommender_rate(rate)
    cpu = [row("grpc+ar", 1, metric="ps_cpu_s_per_step", value=0.0042), *rows]
    assert "| A | 1 | 4.2 ms |" in figures.recommender_cpu(cpu)


def test_every_part_is_written_with_its_record(
    tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def part(lab: everything.Lab) -> list[dict[str, Any]]:
        return [{"python": str(lab.python)}]

    monkeypatch.setattr(everything, "PARTS", {"one": part, "two": part})
    lab = everything.Lab(Path("/x/python"), {})
    files = everything.run(lab, wheel, {}, tmp_path / "new", ["bench", "all"], ["two"])
    assert files == [tmp_path / "new/two.json"]
    rows, made = record.read(files[0])
    assert rows == [{"python": "/x/python"}]
    assert made["command"] == ["bench", "all"]


def test_every_table_has_a_part_that_measures_it() -> None:
    # bench all has no older wheel for the attacks: bench hostile --against measures them; and no
    # RDMA device: tests in virtual hosts count its requests (tests/wheel) and time faults
    # (tests/verbs).
    pages = (figures.TABLES, *figures.BESIDE.values())
    assert {file for tables in pages for file, _ in tables.values()} == {
        f"{name}.json" for name in (*everything.PARTS, "hostile", "requests", "faults")
    }


def test_times_after_faults() -> None:
    """All times of a fault and what follows it are one cell, by the device's driver."""

    def row(fault: str, driver: str, *seconds: float) -> dict[str, Any]:
        return {"fault": fault, "driver": driver, "seen": "an error", "seconds": list(seconds)}

    rows = [
        row("a", "rxe", 0.25, 0.5),
        row("a", "siw", 2),
        row("b", "siw", 1, 1),
        row("a", "rxe", 3),
        row("c", "siw", 0.0, 110.2),
    ]
    assert figures.faults(rows).splitlines() == [
        "| fault | what follows | `rxe` | `siw` |",
        "| --- | --- | --- | --- |",
        "| a | an error | 0.25–3 s | 2 s |",
        "| b | an error |  | 1 s |",
        "| c | an error |  | <0.001–110 s |",
    ]


def test_requests_by_size() -> None:
    """Counts of all steps together are shown for one step, and shares of what was looked at."""

    def task(send: int, read: int) -> dict[str, dict[str, int]]:
        sent = {"send": send, "read": read} if read else {"send": send}
        return {
            "requests": sent,
            "frames": {"data": send - 5, "message": 3, "credits": 2},
            "http2": {"DATA": 10, "PING": 1},
        }

    rows = [
        {
            "protocol": "grpc+ar",
            "bytes": 0,
            "tensors": 0,
            "steps": 10,
            "worker": task(22, 0),
            "ps": task(15, 0),
        },
        {
            "protocol": "grpc+ar",
            "bytes": 1 << 20,
            "tensors": 1,
            "steps": 10,
            "worker": task(22, 20),
            "ps": task(15, 0),
            "looked_at": {"looks": 3, "read": 400, "direct": 300},
        },
    ]
    lines = figures.requests(rows).splitlines()
    assert lines[2] == "| empty | 0 |  | 2.2 | 0.3 | 0.2 | 1.1 | 1.5 | 0.3 | 0.2 | 1.1 |"
    assert lines[3] == "| 1 MiB | 2 | 75% | 2.2 | 0.3 | 0.2 | 1.1 | 1.5 | 0.3 | 0.2 | 1.1 |"


def test_requests_of_writes_by_size() -> None:
    """Those of grpc+verbs are a table of their own."""

    def task(send: int, write: int, registrations: int) -> dict[str, Any]:
        return {
            "requests": {"send": send, **({"write": write} if write else {})},
            "frames": {"message": send - 1, "credits": 1},
            "registrations": registrations,
        }

    rows = [
        {"protocol": "grpc+ar", "bytes": 0},
        {
            "protocol": "grpc+verbs",
            "bytes": 4096,
            "tensors": 1,
            "steps": 10,
            "worker": task(2, 0, 0),
            "ps": task(11, 20, 10),
            "looked_at": {"looks": 3, "written": 400, "from_source": 100},
        },
    ]
    lines = figures.requests_of_writes(rows).splitlines()
    assert lines[2:] == ["| 4 KiB | 2 | 25% | 1 | 0.1 | 0.2 | 1 | 0 |"]
