"""`artf test` itself: what it runs, what it counts, what it keeps, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from artf_cli.bench import record as provenance
from artf_cli.errors import ArtfError
from artf_cli.paths import REPO
from artf_cli.testing import children, full, report, suites
from artf_cli.testing import run as testing
from artf_cli.testing.report import Result
from artf_cli.testing.suites import Suite
from common.protocols import STOCK_CONTROLS

TESTS = """
    import pytest

    def test_right():
        pass

    @pytest.mark.skip(reason="no such machine")
    def test_skipped():
        pass

    @pytest.mark.slow
    def test_slow():
        pass

    @pytest.mark.slow
    @pytest.mark.part("long")
    def test_long():
        pass

    @pytest.mark.parametrize("protocol", ["grpc", "grpc+ar"])
    def test_over(protocol):
        pass

    @pytest.mark.parametrize("protocol", ["grpc", "grpc+ar"])
    @pytest.mark.parametrize("dtype", ["int8", "float32"])
    def test_dtype(dtype, protocol):
        pass
"""
WRONG = "def test_wrong():\n    assert not 1, 'why\\n' * 500\n"
SLOW, CONTROL = "slow (--run-slow)", "stock controls (--full)"


class Tree:
    """Suites of a test's own, in a tree that has this one's conftest.py."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._patch = patch
        self._suites: list[Suite] = []
        (root / "tests").mkdir()
        # The protocols come as plain parameters here.
        conftest = (REPO / "tests/conftest.py").read_text().partition("def pytest_generate_")[0]
        (root / "tests/conftest.py").write_text(conftest)
        (root / "tests/common").symlink_to(REPO / "tests/common")
        patch.setattr(children, "REPO", root)
        patch.setattr(testing.Needs, "of", lambda *_: (Path(sys.executable), {}))

    def add(self, name: str, code: str, **settings: Any) -> None:
        folder = self.root / "tests" / name
        folder.mkdir()
        (folder / f"test_{name}.py").write_text(textwrap.dedent(code))
        self._suites.append(Suite(name, suites.NOTHING, **settings))
        self._patch.setattr(suites, "SUITES", tuple(self._suites))
        parts = dict.fromkeys(part for suite in self._suites for part in suite.parts)
        self._patch.setattr(full, "PARTS", tuple(parts))

    def run(self, *arguments: str, names: Sequence[str] = (), **settings: Any) -> Result:
        return testing.run(names, testing.Needs("", None), arguments, **settings)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    return Tree(tmp_path, monkeypatch)


def test_what_is_left_out_is_counted_by_its_reason(tree: Tree) -> None:
    tree.add("one", TESTS, parts=("first", "long"))
    tree.add("two", WRONG, parts=("first",))
    result = tree.run()
    assert result.lines == [
        "5 passed, 1 failed, 1 skipped",
        f"4 deselected: {SLOW} 2, {CONTROL} 2",
    ]
    (failure,) = result.failures
    assert failure.startswith("tests.two.test_two::test_wrong: AssertionError: why why ")
    assert failure.endswith(" why assert not 1") and "\n" not in failure and len(failure) < 700
    assert result.skips == [
        {"test": "tests.one.test_one::test_skipped", "reason": "no such machine"}
    ]
    assert {name: counts["failed"] for name, counts in result.suites.items()} == {
        "one": 0,
        "two": 1,
    }
    assert all(0 < counts["cpu_s"] <= counts["wall_s"] * 2 for counts in result.suites.values())
    assert tree.run("-k", "right").lines[1] == "10 deselected: by pytest's own arguments 10"


def test_a_full_run_leaves_nothing_out_part_by_part(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.add("one", TESTS, parts=("first", "long"))
    tree.add("two", WRONG, parts=("first",))
    monkeypatch.setattr(full, "clean_commit", lambda: "")
    needs = testing.Needs("", None)
    assert full.run_parts(needs).lines == ["9 passed, 1 failed, 1 skipped", "0 deselected"]
    assert full.run_parts(needs, "long").lines == [
        "1 passed, 0 failed, 0 skipped",
        "9 deselected: in another part of --full 9",
    ]


def test_a_part_is_recorded_unless_files_outside_of_docs_change(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A commit to docs/ in the meantime, the result of another part, does not lose this one's."""
    path = tmp_path / "full.json"
    tree.add("one", TESTS, parts=("first", "long"))
    monkeypatch.setattr(full, "RECORD", path)
    monkeypatch.setattr(full, "REPO", tmp_path)
    needs = testing.Needs("", None)

    def run(commits: list[str], files: list[str]) -> bool:
        path.unlink(missing_ok=True)
        monkeypatch.setattr(full, "clean_commit", lambda: commits.pop(0))
        monkeypatch.setattr(provenance, "files", lambda: files.pop(0))
        full.run_parts(needs, "long")
        return path.exists()

    assert run(["c1", "c2"], ["f1", "f1"])
    assert json.loads(path.read_text())["parts"]["long"]["commit"] == "c1"
    assert not run(["c1", "c2"], ["f1", "f2"])
    assert not run(["c1", ""], ["f1", "f1"])
    assert not run(["", "c1"], ["f1", "f1"])


def test_a_part_that_no_suite_has_is_refused(tree: Tree) -> None:
    tree.add("one", TESTS)
    with pytest.raises(ArtfError, match="pytest ended with 4 in suite one"):
        tree.run()


def test_a_suite_without_tests_fails(tree: Tree) -> None:
    tree.add("one", "def test_right():\n    pass\n")
    tree.add("two", "import sys\n")
    result = tree.run()
    assert (result.passed, result.failures) == (1, ["two: no test was collected"])
    # Arguments may select in other suites alone, but not nowhere.
    assert tree.run("-k", "right").lines[0] == "1 passed, 0 failed, 0 skipped"
    with pytest.raises(ArtfError, match="no test was selected"):
        tree.run("-k", "absent")


def test_results_go_on_where_the_last_call_ended(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.add("one", TESTS, parts=("first", "long"))
    tree.add("two", "import os\n\ndef test_counted():\n    assert os.environ['COUNTED']\n")
    path = tmp_path / "results.json"
    before = report.tree_hash()
    report.save(path, tree.run(names=["one"], done=report.load(path)), before)
    monkeypatch.setenv("COUNTED", "1")
    done = report.load(path)
    (tree.root / "tests/one/test_one.py").unlink()  # it is not run again
    result = tree.run(done=done)
    assert result.lines[0] == "6 passed, 0 failed, 1 skipped"
    assert list(result.suites) == ["one", "two"]
    assert len(result.slowest(3)) == 3
    assert tree.run(done=report.load(path)).lines == result.lines


def test_results_of_other_files_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.json"
    monkeypatch.setattr(report, "tree_hash", lambda: "one")
    report.save(path, Result(passed=3), "one")
    assert report.load(path) == Result(passed=3)
    monkeypatch.setattr(report, "tree_hash", lambda: "two")
    with pytest.raises(ArtfError, match="are of other files than this tree's"):
        report.load(path)
    path.write_text("{}")
    with pytest.raises(ArtfError, match="has no results"):
        report.load(path)


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@x.example"]
    done = subprocess.run(
        ["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_tree_is_known_by_its_files(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("ignored\n")
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "-A")
    seen = [report.tree_hash(tmp_path)]
    git(tmp_path, "commit", "-qm", "x")
    (tmp_path / "ignored").write_text("1")
    assert report.tree_hash(tmp_path) == seen[0]
    for name in ("a", "new", "c d"):
        (tmp_path / name).write_text("2")
        assert report.tree_hash(tmp_path) not in seen
        seen.append(report.tree_hash(tmp_path))
    (tmp_path / "a").unlink()
    assert report.tree_hash(tmp_path) not in seen


def test_only_a_commit_is_recorded(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "docs").mkdir()
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "x")
    commit = git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "docs/full.json").write_text("1")
    assert full.clean_commit(tmp_path) == commit
    (tmp_path / "b").write_text("1")
    assert full.clean_commit(tmp_path) == ""
    assert full.clean_commit(tmp_path / "docs") == ""


def test_what_is_recorded_holds_for_the_same_files_outside_of_docs(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert provenance.files(tmp_path) == ""
    (tmp_path / "docs").mkdir()
    seen: list[str] = []
    for name in ("a", "docs/b", "sub/c", "docs2", "a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(str(len(seen)))
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-qm", "x")
        seen.append(provenance.files(tmp_path))
    assert seen[0] == seen[1]
    assert len(set(seen)) == 4


def test_the_record_holds_the_parts_of_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full, "PARTS", ("first", "long"))
    path = tmp_path / "docs/full.json"
    skip = {"test": "t", "reason": "why"}
    full.record(path, "first", "c1", "f1", Result(passed=3, skipped=1, skips=[skip]), 61.26)
    kept = json.loads(path.read_text())
    assert (kept["files"], kept["missing_parts"], kept["passed"]) == ("f1", ["long"], 3)
    first = kept["parts"]["first"]
    assert (first["seconds"], first["skips"]) == (61.3, [skip])
    assert first["machine"]["cores"]["usable"] >= 1
    assert "cases" not in first
    full.record(path, "long", "c2", "f1", Result(passed=2, failed=1), 5)
    kept = json.loads(path.read_text())
    assert (kept["passed"], kept["failed"], kept["skipped"]) == (5, 1, 1)
    assert kept["missing_parts"] == []
    assert {name: part["commit"] for name, part in kept["parts"].items()} == {
        "first": "c1",
        "long": "c2",
    }
    full.record(path, "long", "c3", "f2", Result(passed=2), 5)
    kept = json.loads(path.read_text())
    assert (kept["files"], list(kept["parts"])) == ("f2", ["long"])


def test_a_record_of_before_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has parts which are none now, or does not say of which files it is."""
    monkeypatch.setattr(full, "PARTS", ("first", "long"))
    path = tmp_path / "full.json"
    parts = {name: {"passed": 1, "failed": 0, "skipped": 0} for name in ("first", "gone")}
    for before in ({"commit": "c0", "parts": parts}, {"files": "f0", "parts": parts}):
        path.write_text(json.dumps(before))
        full.record(path, "long", "c1", "f1", Result(passed=2), 5)
        kept = json.loads(path.read_text())
        assert (kept["passed"], list(kept["parts"])) == (2, ["long"])
        assert kept["missing_parts"] == ["first"]


def test_the_parts_of_recv() -> None:
    """The first is what has no mark; the others are those that the suite's tests name."""
    (recv,) = suites.chosen(["recv"])
    assert recv.parts[0] == "recv"
    texts = "".join(path.read_text() for path in (REPO / recv.folder).glob("*.py"))
    for part in recv.parts[1:]:
        assert f'pytest.mark.part("{part}")' in texts, part
        assert suites.chosen([], part) == [recv]


def test_a_part_that_takes_too_long_is_ended_and_fails(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"""
        import pathlib, time

        def test_right():
            pass

        def test_sleeps():
            limit = pathlib.Path({str(tmp_path)!r})
            while not (limit / "quick").exists():
                time.sleep(0.02)
            (limit / "late").touch()
            time.sleep(600)
    """
    quick = (
        f"import pathlib\n\ndef test_quick():\n    pathlib.Path({str(tmp_path)!r}, 'quick').touch()"
    )
    tree.add("one", quick, together="x", parts=("first",))
    tree.add("two", code, together="x", parts=("first",))
    tree.add("three", "def test_never():\n    pass\n", parts=("first",))
    look = children._Child.look

    def late(child: children._Child) -> bool:
        over = look(child)
        if over and (tmp_path / "late").exists():
            monkeypatch.setattr(children, "time", Later())
        return over

    monkeypatch.setattr(children._Child, "look", late)
    result = tree.run(part="first", full=True)
    assert result.passed == 2
    assert [failure.partition(": not over")[0] for failure in result.failures] == ["two", "three"]


class Later:
    """The clock once a part is out of time."""

    sleep = staticmethod(time.sleep)

    @staticmethod
    def monotonic() -> float:
        return time.monotonic() + suites.PART_MINUTES * 60


def test_suites_side_by_side_have_outputs_and_ports_of_their_own(
    tree: Tree, capfd: pytest.CaptureFixture[str]
) -> None:
    other = "while not pathlib.Path(f'{folder}/%s').exists():\n        time.sleep(0.02)"
    for name, wanted, ports in (("one", "two", "0/2"), ("two", "one", "1/2")):
        tree.add(
            name,
            "import os, pathlib, time\nfolder = pathlib.Path(__file__).parents[1]\n\n"
            f"def test_{name}():\n    (folder / '{name}.here').touch()\n"
            f"    {other % f'{wanted}.here'}\n"
            f"    assert os.environ['ARTF_TEST_PORTS'] == '{ports}'\n",
            together="x",
        )
    assert tree.run().lines[0] == "2 passed, 0 failed, 0 skipped"
    said = capfd.readouterr().out
    first, _, second = said.partition("1 passed")
    assert ("suite one" in first) != ("suite two" in first)
    assert ("suite one" in second) != ("suite two" in second)


def test_a_stock_control_that_is_no_case_is_refused(tree: Tree) -> None:
    tree.add("one", TESTS.replace("float32", "int16"), parts=("first", "long"))
    with pytest.raises(ArtfError, match="pytest ended with 4 in suite one"):
        tree.run()


def test_every_stock_control_is_a_test() -> None:
    texts = [path.read_text() for path in (REPO / "tests").glob("*/test_*.py")]
    for name in STOCK_CONTROLS:
        assert any(f"def {name}(" in text for text in texts), name


def test_every_folder_with_tests_is_a_suite() -> None:
    assert suites.without_tests() == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--part", "base"),
        ("--full", "--only", "lint"),
        ("--full", "--", "-x"),
        ("--full", "--part", "none"),
        ("--resume", "file", "--", "-x"),
        ("--durations", "-1"),
    ],
)
def test_what_does_not_go_together_exits_2(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "artf_cli", "test", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr


@pytest.mark.parametrize(
    ("suite", "own", "seen"),
    [
        ("tf2", None, "glibc.malloc.perturb=165"),
        ("tf2", "glibc.malloc.arena_max=1", "glibc.malloc.arena_max=1"),
        ("containers", None, None),
    ],
)
def test_freed_memory_is_overwritten_where_the_library_runs(
    monkeypatch: pytest.MonkeyPatch, suite: str, own: str | None, seen: str | None
) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if own is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", own)
    (one,) = suites.chosen([suite])
    command = testing._command(one, Path("python"), {}, Path("folder"), [], False, "0/1")
    assert command.env.get("GLIBC_TUNABLES") == seen
    assert (command.env["PYTHONPATH"] == "") == one.installed
