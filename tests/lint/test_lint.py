"""Formatters, linters and types over the whole tree: one test per tool."""

from __future__ import annotations

import ast
import fnmatch
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from artf_cli import bazel, system
from artf_cli.bench import figures, record
from artf_cli.testing import full
from common import npm

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


@pytest.mark.parametrize("tree", ["scripts/artf_cli", "scripts/clusters", "tests"])
def test_mypy(tree: str) -> None:
    run(BIN / "mypy", "--no-incremental", "--cache-dir=/dev/null", tree)


def test_mypy_for_the_oldest_python() -> None:
    """What Python 3.9 lacks. Its own packages are not here, so that only our lines are read."""
    flags = ["--config-file=", "--python-version=3.9", "--explicit-package-bases"]
    flags += ["--follow-imports=skip", "--ignore-missing-imports", "--no-strict-optional"]
    # What never returns is not known to, as its package is not read.
    flags += ["--disable-error-code=misc"]
    trees = ("scripts/artf_cli", "scripts/clusters", "tests")
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
    assert {"scripts/artf", "scripts/preflight", ".ci/run", "docker/through"} <= set(scripts)
    run(BIN / "shellcheck", *scripts)


def test_hadolint() -> None:
    files = tracked("docker/*Dockerfile")
    assert files
    run(BIN / "hadolint", "--no-color", *files)


#: In no Python package; npm's has the release's programs.
BUILDIFIER = "@bazel/buildifier@8.2.1"
BUILDIFIER_SHA256 = "6ceb7b0ab7cf66fceccc56a027d21d9cc557a7f34af37d2101edb56b92fcfa1a"


def test_buildifier(tmp_path: Path) -> None:
    buildifier = npm.program(BUILDIFIER, "buildifier-linux_amd64", BUILDIFIER_SHA256, tmp_path)
    files = tracked("*BUILD", "*.bzl", "*WORKSPACE")
    assert {"build/BUILD", "build/flags.bzl", "build/grpc.BUILD", "WORKSPACE"} <= set(files)
    run(buildifier, "--mode=check", *files)


def packages_of(dockerfile: str) -> list[set[str]]:
    """What each apt-get of a Dockerfile installs."""
    lines = (REPO / "docker" / dockerfile).read_text().splitlines(keepends=True)
    text = "".join(each for each in lines if not each.lstrip().startswith("#"))
    text = text.replace("\\\n", " ")
    found = re.findall(r"apt-get install ([^&\n]*)", text)
    return [{word for word in words.split() if not word.startswith("-")} for words in found]


def test_dockerfiles_install_what_the_table_names() -> None:
    needs = system.needs()
    apt = {name: set(need.packages.get(system.APT, ())) for name, need in needs.items()}
    build = {package for name in needs if not needs[name].optional for package in apt[name]}
    # Of an image alone: Debian's sources, and a Bazel, so that none is fetched.
    extras = {"debian-archive-keyring"} | apt["bazel"]
    old, tools = packages_of("build.Dockerfile")
    assert tools - extras == build
    # The old release's, to compile with.
    assert old == apt["compiler"]
    run, made = packages_of("runtime.Dockerfile")
    assert run == apt["rdma"] | {"python3"}
    assert made == {"python3-venv"}
    assert apt["bazel"] == {bazel.PACKAGE}


def test_the_first_python_files_have_no_syntax_of_a_newer_python() -> None:
    """tests/units/test_preflight.py runs them by Python 2.7 and 3.6 where pyenv has them."""
    tree = ast.parse((REPO / "scripts/artf_cli/start.py").read_text(), feature_version=(3, 6))
    newer = (ast.JoinedStr, ast.AnnAssign, ast.AsyncFunctionDef, ast.NamedExpr, ast.Starred)
    assert not [node for node in ast.walk(tree) if isinstance(node, newer)]
    for name in ("uv", "package_index"):
        text = (REPO / f"scripts/artf_cli/{name}.py").read_text()
        assert "from __future__" not in text
        ast.parse(text, feature_version=(3, 6))


def test_clang_format() -> None:
    sources = tracked("third_party/ar_grpc/*.cc", "third_party/ar_grpc/*.h", "tests/*.cc")
    assert sources
    run(BIN / "clang-format", "--dry-run", "-Werror", *sources)


def test_starts_on_python_3_9() -> None:
    for name in tracked("scripts/*.py", "tests/*.py"):
        ast.parse((REPO / name).read_text(), name, feature_version=(3, 9))


def test_one_version_of_the_cache_rule() -> None:
    """An old Python reads uv.py, and cannot read paths.py: the two must agree by hand."""

    def body(name: str) -> str:
        text = (REPO / "scripts/artf_cli" / name).read_text()
        return re.search(r"def cache_dir.*?expanduser\(\)\.resolve\(\)", text, re.S).group(0)  # type: ignore[union-attr]

    def code(text: str) -> list[str]:
        return [line.split("return ")[-1].split("path = ")[-1] for line in text.splitlines()[2:]]

    assert code(body("uv.py")) == code(body("paths.py"))


def test_readme_commands_exist() -> None:
    """Every `scripts/artf …` of the README is a command that its --help knows."""
    for command in set(re.findall(r"^scripts/artf (\w+)", (REPO / "README.md").read_text(), re.M)):
        run(sys.executable, "-m", "artf_cli", command, "--help")


#: What docs and comments name that is made, or is upstream's.
NOT_HERE = {
    "SECURITY.md",
    "build/requirements/NAME.txt",
    "dist-info/ar_grpc/",
    "dist/",
    "matrix.html",
    "matrix.json",
    "tests/recv/kept_cases/found-over-PATH.json",
}
A_FILE = r"[\w./*-]+\.(?:py|cc|h|sh|toml|json|bzl|BUILD|Dockerfile|md|txt|yaml|patch|html)"


@functools.cache
def known() -> list[str]:
    """Each file and each folder, a folder with a slash at its end."""
    files = tracked()
    return [*files, *{f"{folder}/" for name in files for folder in Path(name).parents}]


def absent(names: Iterable[str]) -> list[str]:
    """Those that no file or folder has at its end; `*` stands for any characters."""
    return sorted(
        name
        for name in set(names) - NOT_HERE
        if not any(fnmatch.fnmatchcase(f"/{each}", f"*/{name}") for each in known())
    )


def anchors(page: Path) -> set[str]:
    """The names that a page's headings get."""
    headings = re.findall(r"^#+ (.*)", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", text).strip().lower().replace(" ", "-") for text in headings}


@pytest.mark.parametrize("name", tracked("*.md"))
def test_docs_name_what_exists(name: str) -> None:
    """Links, files, tests and variables; a renamed one is found here."""
    page = REPO / name
    text = page.read_text()
    sources = tracked("*.py", "*.cc", "*.h", "docker/*")
    code = "\n".join((REPO / each).read_text() for each in sources)
    for link in re.findall(r"\]\(([^)#]*)(?:#[^)]*)?\)", text):
        assert "://" in link or (page.parent / link).exists(), link
    for link, anchor in re.findall(r"\]\(([^):#]*)#([^)]*)\)", text):
        assert anchor in anchors(page.parent / link if link else page), anchor
    assert not absent(re.findall(rf"`({A_FILE}|[\w.-]+(?:/[\w.-]+)*/)`", text))
    tests = set(re.findall(r"\btest_\w+(?=[`[])", text))
    assert not [test for test in tests if f"def {test}(" not in code]
    variables = set(re.findall(r"\b(?:AR|ARTF)_[A-Z_]+\b", text))
    assert not [each for each in variables if not re.search(rf"\b{each}\b", code)]


def test_variables_that_are_read_are_documented() -> None:
    docs = "\n".join((REPO / name).read_text() for name in tracked("*.md"))
    sources = tracked("third_party/ar_grpc/*.cc", "third_party/ar_grpc/*.h")
    code = "\n".join((REPO / name).read_text() for name in sources)
    read = set(re.findall(r'(?:getenv\(|k\w+\[\] = )"(AR_[A-Z_]+)"', code))
    assert "AR_GRPC_FABRICS" in read
    assert not [name for name in read if f"`{name}`" not in docs]


def test_comments_name_files_that_exist() -> None:
    """By their way from the root; tests of artf make up some."""
    at_root = rf"(?<![\w./@-])((?:build|docker|docs|patches|scripts|tests|third_party)/{A_FILE})\b"
    for name in tracked("*.py", "*.cc", "*.h", "*.bzl", ".ci/run", "docker/*"):
        if not name.startswith(("tests/units/", "tests/patches/")):
            assert not absent(re.findall(at_root, (REPO / name).read_text())), name


def test_tables_of_figures_are_what_their_command_makes() -> None:
    for page in figures.PAGES:
        assert figures.render(page.read_text(), page=page) == page.read_text()
    for raw in figures.FOLDER.glob("*.json"):
        if raw == full.RECORD:
            continue  # of tests, not of figures
        rows, made = record.read(raw)
        assert rows, raw
        # Of a commit that anyone can have, not of a changed tree.
        assert re.fullmatch("[0-9a-f]{40}", made["commit"]), raw


def test_no_table_of_figures_stands_elsewhere() -> None:
    """A cell that is a measured value and nothing else; limits have words beside them."""
    figure = re.compile(r"[\d.,]+ ?(?:[µmn]?s|x|%|steps/s|[KMG]B/s)")
    for name in tracked("*.md"):
        text = (REPO / name).read_text()
        lines = (figures.outside(text) if REPO / name in figures.PAGES else text).splitlines()
        cells = [cell.strip() for line in lines if line.startswith("|") for cell in line.split("|")]
        found = [cell for cell in cells if figure.fullmatch(cell)]
        assert not found, f"{name}: {found}"
