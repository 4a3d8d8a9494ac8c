"""The patch series: what is there holds, and every way to break it is named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from artf_cli import patches, pins, sources
from artf_cli.errors import ArtfError

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Path]:
    """A copy of what the patch commands read, to break; the archives come from the cache."""
    for name in ("build", "patches", "scripts", "third_party"):
        shutil.copytree(REPO / name, tmp_path / name)
    yield tmp_path


def check(root: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(root / "scripts")}
    command = [sys.executable, "-m", "artf_cli", "patches", "check", "--json"]
    return subprocess.run(command, env=env, capture_output=True, text=True)


def assert_refused(root: Path, *words: str) -> None:
    done = check(root)
    assert done.returncode == 1, done.stdout + done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("artf: "), done.stderr
    for word in words:
        assert word in last, last


def test_the_series_holds_and_does_not_drift() -> None:
    done = check(REPO)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["ok"] is True
    names = {(p["tree"], p["name"]) for p in report["patches"]}
    on_disk = {(p.parent.name, p.name) for p in (REPO / "patches").glob("*/*.patch")}
    assert names == on_disk


@pytest.mark.parametrize("reason", ["upstream bug", "security"])
def test_every_mend_has_a_reference(reason: str) -> None:
    mends = [patch for patch in patches.list_patches() if patch.reason == reason]
    assert mends
    assert all(mend.reference.startswith("https://") for mend in mends)


def test_a_changed_byte_names_the_file_and_both_hashes(copy: Path) -> None:
    path = next((copy / "patches/grpc").glob("0001-*.patch"))
    wanted = pins.sha256_of(path)
    path.write_bytes(path.read_bytes().replace(b"jitter", b"Jitter", 1))
    assert pins.sha256_of(path) != wanted
    assert_refused(copy, str(path), wanted, pins.sha256_of(path))


def test_a_changed_overlay_names_the_file_and_both_hashes(copy: Path) -> None:
    path = copy / "third_party/ar_grpc/tensorflow/unique_id.cc"
    wanted = pins.sha256_of(path)
    path.write_text(path.read_text() + "\n")
    assert_refused(copy, str(path), wanted, pins.sha256_of(path))


def test_an_orphan_is_named(copy: Path) -> None:
    (copy / "patches/tensorflow/0099-nobody-lists-me.patch").write_text("x")
    assert_refused(copy, "0099-nobody-lists-me.patch", "orphan")


def test_a_missing_patch_is_named(copy: Path) -> None:
    path = next((copy / "patches/tensorflow").glob("0003*.patch"))
    path.unlink()
    assert_refused(copy, path.name, "missing")


def test_a_patch_listed_twice_is_named(copy: Path) -> None:
    series = copy / "patches/grpc/series"
    series.write_text(series.read_text() + series.read_text().splitlines()[-1] + "\n")
    assert_refused(copy, "twice")


def test_a_hand_edited_hunk_is_drift(copy: Path) -> None:
    """Same change, other bytes: it would apply, but its export differs."""
    path = next((copy / "patches/grpc").glob("0001-*.patch"))
    path.write_text(path.read_text().replace("\n@@ ", "\n@@ ", 1).replace(" @@\n", " @@ f\n", 1))
    manifest = copy / "build/pins.toml"
    old = pins.load().patches["grpc"][path.name]
    manifest.write_text(manifest.read_text().replace(old, pins.sha256_of(path)))
    assert_refused(copy, path.name, "export")


def test_a_patch_that_does_not_fit_is_refused_without_fuzz(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("one\ntwo\nthree\n")
    patch = tmp_path / "0001-x.patch"
    patch.write_text(
        "x\n\ndiff --git a/f.txt b/f.txt\n--- a/f.txt\n+++ b/f.txt\n@@ -1,3 +1,3 @@\n"
        " one\n-two\n+TWO\n tree\n"
    )
    with pytest.raises(ArtfError, match="does not apply"):
        sources.git_apply(patch, tmp_path)
    assert (tmp_path / "f.txt").read_text() == "one\ntwo\nthree\n"


def test_a_patch_is_applied_inside_a_foreign_checkout(tmp_path: Path) -> None:
    """git apply would take paths from the outer checkout's top and skip them in silence."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "f.txt").write_text("one\n")
    patch = tmp_path / "0001-x.patch"
    patch.write_text(
        "x\n\ndiff --git a/f.txt b/f.txt\n--- a/f.txt\n+++ b/f.txt\n@@ -1 +1 @@\n-one\n+ONE\n"
    )
    sources.git_apply(patch, inner)
    assert (inner / "f.txt").read_text() == "ONE\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Subject\n\nwhy\n\nClass: mission\n", "no diff"),
        ("Subject\n\nwhy\n\nClass: taste\n\ndiff --git a/x b/x\n", "Class is 'taste'"),
        ("Subject\n\nwhy\n\nClass: upstream bug\n\ndiff --git a/x b/x\n", "Reference"),
        ("Subject\n\nwhy\n\nClass: security\n\ndiff --git a/x b/x\n", "Reference"),
        ("S" * 80 + "\n\nwhy\n\nClass: build\n\ndiff --git a/x b/x\n", "72 characters"),
        ("Subject\nwhy\n\nClass: build\n\ndiff --git a/x b/x\n", "blank line"),
    ],
)
def test_a_malformed_patch_is_named(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "0001-name.patch"
    path.write_text(text)
    with pytest.raises(ArtfError, match=fault):
        patches.parse(path)


def test_export_of_an_edit_is_the_series_again(copy: Path, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(copy / "scripts")}
    artf = [sys.executable, "-m", "artf_cli", "patches"]
    work = tmp_path / "work"
    for arguments in (["edit", "grpc", str(work)], ["export", "grpc", str(work)]):
        subprocess.run([*artf, *arguments], env=env, check=True, capture_output=True)
    for path in sorted((REPO / "patches/grpc").iterdir()):
        assert (copy / "patches/grpc" / path.name).read_bytes() == path.read_bytes()
    assert (copy / "build/pins.toml").read_bytes() == (REPO / "build/pins.toml").read_bytes()
