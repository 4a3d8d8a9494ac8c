"""What raw figures say of the machine and the run that made them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from artf_cli import pins
from artf_cli.bench import record
from artf_cli.errors import ArtfError


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "tensorflow_cpu-2.14.1+ar.1-cp311-cp311-linux_x86_64.whl"
    path.write_bytes(b"a wheel")
    return path


def test_a_record_names_wheels_and_machine_and_no_folder(wheel: Path) -> None:
    command = ["scripts/artf", "bench", "recv", f"--against={wheel}", str(wheel), "--rounds=3"]
    made = record.record(wheel, command, {"against": wheel})
    assert set(made) == set(record.Record.__annotations__)
    expected = {"file": wheel.name, "sha256": pins.sha256_of(wheel)}
    assert (made["wheel"], made["wheels"]) == (expected, {"against": expected})
    assert made["command"] == [
        *("scripts/artf", "bench", "recv", f"--against={wheel.name}", wheel.name, "--rounds=3")
    ]
    assert made["cores"]["usable"] >= 1
    assert made["memory_bytes"] > 1 << 20
    assert made["glibc"].startswith("2.")
    assert len(made["load"]) == 3


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_changed_tree_is_dirty_unless_only_docs_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert record.commit(tmp_path) == "unknown"
    git(tmp_path, "init", "-q")
    (tmp_path / "docs").mkdir()
    for name in ("code.py", "docs/measured.md"):
        (tmp_path / name).write_text("one\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "one")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert record.commit(tmp_path) == head
    (tmp_path / "docs/measured.md").write_text("two\n")
    (tmp_path / "docs/new.json").write_text("{}\n")
    assert record.commit(tmp_path) == head
    (tmp_path / "new.py").write_text("two\n")
    assert record.commit(tmp_path) == f"{head}-dirty"


def test_the_quota_is_the_least_of_all_levels(tmp_path: Path) -> None:
    for group, text in (("", "max 100000"), ("a", "150000 100000"), ("a/b", "400000 100000")):
        (tmp_path / group).mkdir(exist_ok=True)
        (tmp_path / group / "cpu.max").write_text(text + "\n")
    assert record.cpu_quota("0::/a/b\n", tmp_path) == 1.5
    assert record.cpu_quota("0::/\n", tmp_path) is None
    assert record.cpu_quota("0::/gone\n", tmp_path) is None


def test_the_quota_of_the_first_version_of_control_groups(tmp_path: Path) -> None:
    (tmp_path / "cpu/a").mkdir(parents=True)
    for group, quota in (("cpu", -1), ("cpu/a", 50000)):
        (tmp_path / group / "cpu.cfs_quota_us").write_text(f"{quota}\n")
        (tmp_path / group / "cpu.cfs_period_us").write_text("100000\n")
    assert record.cpu_quota("4:memory:/a\n3:cpu,cpuacct:/a\n0::/\n", tmp_path) == 0.5
    assert record.cpu_quota("4:memory:/a\n3:cpuset:/a\n", tmp_path) is None


def test_the_processors_name() -> None:
    assert record.cpu_model("processor\t: 0\nmodel name\t: A CPU: fast\n") == "A CPU: fast"
    assert record.cpu_model("processor\t: 0\n") != ""


def test_rows_and_record_come_back(tmp_path: Path, wheel: Path) -> None:
    path = tmp_path / "new/recv.json"
    made = record.record(wheel, ["x"])
    rows: list[dict[str, Any]] = [{"b": 1, "a": "µs"}, {"a": None, "b": 2.5}]
    record.write(path, rows, made)
    assert record.read(path) == (rows, made)
    # One row a line, so that a difference shows which.
    assert '  {"a": null, "b": 2.5}' in path.read_text().splitlines()
    assert [each.name for each in path.parent.iterdir()] == ["recv.json"]


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path: Path, wheel: Path) -> None:
    path = tmp_path / "recv.json"
    made = record.record(wheel, ["x"])
    record.write(path, [{"a": 1}], made)
    with pytest.raises(TypeError):
        record.write(path, [{"a": object()}], made)
    assert record.read(path)[0] == [{"a": 1}]
    assert sorted(tmp_path.glob("*recv.json*")) == [path]


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        ("no JSON", "has no rows with a record"),
        ([], "has no rows with a record"),
        ({"rows": []}, "has no rows with a record"),
        ({"rows": [], "record": {"commit": "x"}}, "its record lacks command, cores, cpu, date"),
    ],
)
def test_a_file_without_a_record_is_named(tmp_path: Path, whole: Any, said: str) -> None:
    path = tmp_path / "spin.json"
    path.write_text(whole if isinstance(whole, str) else json.dumps(whole))
    with pytest.raises(ArtfError, match=said) as caught:
        record.read(path)
    assert str(path) in caught.value.what
    assert "scripts/artf bench all" in caught.value.cure


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtfError, match=r"recv\.json is missing"):
        record.read(tmp_path / "recv.json")
