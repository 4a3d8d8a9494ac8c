"""The patch series: what is there holds, and every way to break it is named."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from artf_cli import fetch, patches, pins, sources
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


def source_archive(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"top/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


class NewPin:
    """A checkout with one tree, whose pin is moved; its series has a patch for each file."""

    OLD: ClassVar[dict[str, str]] = {"a.txt": "one\ntwo\nthree\n", "b.txt": "red\ngreen\nblue\n"}

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root, self.work = root, root / "work"
        self._archives = {"1.0": source_archive(root / "1.0.tar", self.OLD)}
        monkeypatched = {
            "REPO": root,
            "PATCHES": root / "patches",
            "PINS": root / "build/pins.toml",
        }
        for name, value in monkeypatched.items():
            patch.setattr(patches, name, value)
        patch.setattr(sources, "PATCHES", root / "patches")
        patch.setattr(pins, "load", self._load)
        patch.setattr(fetch, "source", lambda tree, pin: self._archives[pin.version])
        patch.setattr(patches, "seal", lambda: None)
        (root / "build").mkdir()
        (root / "patches/grpc").mkdir(parents=True)
        (root / "patches/grpc/series").write_text("0001-x.patch\n")
        (root / "patches/grpc/0001-x.patch").write_text("")
        self._pin("1.0")
        # The series, from an edit of its own.
        (root / "patches/grpc/series").write_text("# Applied in this order.\n")
        patches.edit("grpc", root / "first")
        for file, old, new in (("a.txt", "two", "TWO"), ("b.txt", "green", "GREEN")):
            path = root / "first" / file
            path.write_text(path.read_text().replace(old, new))
            message = f"Shout {old}\n\nSo that it is heard.\n\nClass: mission\n"
            self.git(root / "first", "commit", "-qam", message)
        patches.export("grpc", root / "first")
        (root / "patches/grpc/0001-x.patch").unlink(missing_ok=True)
        self.git(root, "init", "-q")
        self.git(root, "add", "build")
        identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
        self.git(root, *identity, "commit", "-qm", "pins")

    def move(self, files: dict[str, str]) -> None:
        self._archives["2.0"] = source_archive(self.root / "2.0.tar", files)
        self._pin("2.0")
        patches.move("grpc", self.work, "HEAD")

    def series(self) -> list[str]:
        patches.export("grpc", self.work)
        return sources.series("grpc")

    def applied(self) -> dict[str, str]:
        """The new sources with the series, as a build makes them."""
        out = self.root / "out"
        sources.unpack(self._archives["2.0"], out, None)
        for name in sources.series("grpc"):
            sources.git_apply(self.root / "patches/grpc" / name, out)
        return {path.name: path.read_text() for path in out.iterdir()}

    @staticmethod
    def git(folder: Path, *arguments: str) -> None:
        """As where git has no settings: whatever a commit needs the folder's own repository has."""
        settings = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
        env = {**os.environ, **settings, "GIT_EDITOR": "true"}
        subprocess.run(["git", *arguments], cwd=folder, env=env, check=True, capture_output=True)

    def _pin(self, version: str) -> None:
        """Of another time: it lacks most of today's tables, and has one that today's lacks."""
        none = f'sha256 = "{"0" * 64}"\n'
        (self.root / "build/pins.toml").write_text(
            f'[sources.grpc]\nversion = "{version}"\ndelta_paths = ["a.txt", "b.txt"]\n'
            f'[sources.grpc.upstream]\nurl = "https://localhost/grpc"\n{none}'
            f'[sources.grpc.debian]\npackage = "grpc"\nsuite = "sid"\nfile = "grpc"\n{none}'
            "[of.another.time]\n"
        )

    def _load(self) -> pins.Manifest:
        found = pins.sources_then(self.root / "build/pins.toml")
        return pins.Manifest.model_construct(sources=found, tools={})


@pytest.fixture
def new_pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NewPin:
    return NewPin(tmp_path, monkeypatch)


def test_patches_move_to_a_new_pin(new_pin: NewPin) -> None:
    new_pin.move({"a.txt": "zero\none\ntwo\nthree\n", "b.txt": "red\ngreen\nblue\nblack\n"})
    assert new_pin.series() == ["0001-shout-two.patch", "0002-shout-green.patch"]
    assert new_pin.applied() == {
        "a.txt": "zero\none\nTWO\nthree\n",
        "b.txt": "red\nGREEN\nblue\nblack\n",
    }


def test_a_patch_that_conflicts_with_a_new_pin_can_be_mended(new_pin: NewPin) -> None:
    with pytest.raises(ArtfError, match=r"'Shout two' conflicts with the new grpc in a\.txt"):
        new_pin.move({"a.txt": "one\n2\nthree\n", "b.txt": "red\ngreen\nblue\n"})
    (new_pin.work / "a.txt").write_text("one\n2!\nthree\n")
    new_pin.git(new_pin.work, "add", "a.txt")
    new_pin.git(new_pin.work, "rebase", "--continue")
    assert new_pin.series() == ["0001-shout-two.patch", "0002-shout-green.patch"]
    assert new_pin.applied() == {"a.txt": "one\n2!\nthree\n", "b.txt": "red\nGREEN\nblue\n"}


def test_a_patch_that_comes_between_moves_the_numbers(new_pin: NewPin) -> None:
    new_pin.move(new_pin.OLD)
    new_pin.git(new_pin.work, "reset", "-q", "--hard", "HEAD^")
    path = new_pin.work / "a.txt"
    path.write_text(path.read_text().replace("one", "ONE"))
    new_pin.git(new_pin.work, "commit", "-qam", "Shout one\n\nIt is first.\n\nClass: mission\n")
    new_pin.git(new_pin.work, "cherry-pick", "ORIG_HEAD")
    assert new_pin.series() == [
        "0001-shout-two.patch",
        "0002-shout-one.patch",
        "0003-shout-green.patch",
    ]


def test_a_name_that_is_none_is_refused(new_pin: NewPin) -> None:
    new_pin.move(new_pin.OLD)
    path = new_pin.work / "a.txt"
    path.write_text(path.read_text().replace("one", "ONE"))
    message = "Shout one\n\nIt is first.\n\nClass: mission\n\nPatch-Name: shout.patch\n"
    new_pin.git(new_pin.work, "commit", "-qam", message)
    with pytest.raises(ArtfError, match=r"shout\.patch is not NNNN-words\.patch"):
        new_pin.series()


def test_edit_from_an_older_pin(copy: Path, tmp_path: Path) -> None:
    """By the command line: the series as it is, where the pin has not moved."""
    folder = tmp_path / "edited"
    env = {**os.environ, "PYTHONPATH": str(copy / "scripts")}
    command = [sys.executable, "-m", "artf_cli", "patches", "edit", "--from", "HEAD", "grpc"]
    for arguments in (["init", "-q"], ["add", "build"]):
        subprocess.run(["git", *arguments], cwd=copy, check=True)
    commit = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-qm", "pins"]
    subprocess.run(commit, cwd=copy, check=True)
    done = subprocess.run([*command, str(folder)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    log = subprocess.run(
        ["git", "log", "--reverse", "--format=%s", "pristine.."],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    wanted = [each.subject for each in patches.list_patches() if each.tree == "grpc"]
    assert log.stdout.splitlines() == wanted
