"""Formatters, linters and types over the whole tree: one test per tool."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from artf_cli.bench import figures, record
from artf_cli.testing import full

REPO = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PYTHON_TREES = ("scripts", "tests")


def run(*command: str | Path, **env: str) -> None:
    done = subprocess.run(
        [str(c) for c in command],
        cwd=REPO,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def tracked(*patterns: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.splitlines() if (REPO / name).exists()]


def test_ruff_check() -> None:
    run(BIN / "ruff", "check", "--no-cache", *PYTHON_TREES)


def test_ruff_format() -> None:
    run(BIN / "ruff", "format", "--no-cache", "--check", *PYTHON_TREES)


@pytest.mark.parametrize("tree", ["scripts/artf_cli", "tests"])
def test_mypy(tree: str) -> None:
    run(BIN / "mypy", "--no-incremental", "--cache-dir=/dev/null", tree)


def test_mypy_for_the_oldest_python() -> None:
    """What Python 3.9 lacks. Its own packages are not here, so that only our lines are read."""
    flags = ["--config-file=", "--python-version=3.9", "--explicit-package-bases"]
    flags += ["--follow-imports=skip", "--ignore-missing-imports", "--no-strict-optional"]
    # What never returns is not known to, as its package is not read.
    flags += ["--disable-error-code=misc"]
    trees = ("scripts/artf_cli", "tests")
    path = "scripts:scripts/artf_cli/runtime:tests:tests/units"
    flags += ["--no-incremental", "--cache-dir=/dev/null"]
    run(BIN / "mypy", *flags, *trees, MYPYPATH=path)


def test_shellcheck() -> None:
    # By their first lines, since none has a suffix.
    scripts = [
        name
        for name in tracked()
        if re.match(rb"#!.*\b(ba|da)?sh\b", (REPO / name).read_bytes()[:80])
    ]
    assert {"scripts/artf", ".ci/run", "docker/through"} <= set(scripts)
    run(BIN / "shellcheck", *scripts)


def test_hadolint() -> None:
    files = tracked("docker/*Dockerfile")
    assert files
    run(BIN / "hadolint", "--no-color", *files)


def test_clang_format() -> None:
    sources = tracked("third_party/ar_grpc/*.cc", "third_party/ar_grpc/*.h", "tests/*.cc")
    assert sources
    run(BIN / "clang-format", "--dry-run", "-Werror", *sources)


def test_starts_on_python_3_9() -> None:
    for name in tracked("scripts/*.py", "tests/*.py"):
        ast.parse((REPO / name).read_text(), name, feature_version=(3, 9))


def test_one_version_of_the_cache_rule() -> None:
    """bootstrap.py cannot import paths.py, so the two must agree by hand."""

    def body(name: str) -> str:
        text = (REPO / "scripts/artf_cli" / name).read_text()
        return re.search(r"def cache_dir.*?expanduser\(\)\.resolve\(\)", text, re.S).group(0)  # type: ignore[union-attr]

    def code(text: str) -> list[str]:
        return [line.split("return ")[-1].split("path = ")[-1] for line in text.splitlines()[2:]]

    assert code(body("bootstrap.py")) == code(body("paths.py"))


def test_readme_commands_exist() -> None:
    """Every `scripts/artf …` of the README is a command that its --help knows."""
    for command in set(re.findall(r"^scripts/artf (\w+)", (REPO / "README.md").read_text(), re.M)):
        run(sys.executable, "-m", "artf_cli", command, "--help")


def test_tables_of_figures_are_what_their_command_makes() -> None:
    assert figures.render(figures.PAGE.read_text()) == figures.PAGE.read_text()
    for raw in figures.FOLDER.glob("*.json"):
        if raw == full.RECORD:
            continue  # of tests, not of figures
        rows, _ = record.read(raw)
        assert rows, raw


def test_no_table_of_figures_stands_elsewhere() -> None:
    """A cell that is a measured value and nothing else; limits have words beside them."""
    figure = re.compile(r"[\d.,]+ ?(?:[µmn]?s|x|%|steps/s|[KMG]B/s)")
    for name in tracked("*.md"):
        lines = (REPO / name).read_text().splitlines()
        cells = [cell.strip() for line in lines if line.startswith("|") for cell in line.split("|")]
        found = [cell for cell in cells if figure.fullmatch(cell)]
        assert not found or REPO / name == figures.PAGE, f"{name}: {found}"
