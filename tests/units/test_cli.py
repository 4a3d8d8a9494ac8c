"""The contract at the command line: exit statuses, one line that names the thing and the cure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from artf_cli import build, system
from artf_cli.errors import ArtfError


def artf(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "artf_cli", *arguments]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)


@pytest.mark.parametrize(
    "command", ["quickstart", "build", "test", "bench", "doctor", "patches", "mpi"]
)
def test_every_command_has_help(command: str) -> None:
    done = artf(command, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: artf {command}")


@pytest.mark.parametrize(
    "arguments",
    [
        ("build", "--frobnicate"),
        ("build", "--python", "cp312"),
        ("build", "--base", "torch"),
        ("test", "--only", "everything"),
        ("bench", "recv", "--rounds", "0"),
        ("bench", "recv", "--against", "no-such.whl"),
        ("bench", "all", "--only", "spin"),
        ("bench", "recommender", "--workers", "two"),
        ("bench", "recv", "--api", "eager"),
        ("bench", "recv", "--peer", "h:1", "--upstream"),
        ("bench", "recv", "--peer", "h:1", "--pin"),
        ("bench", "serve"),
        ("mpi", "-np", "2"),
        ("mpi", "-np", "2", "--with", "lam", "true"),
        ("quickstart", "--container", "--protocols", "grpc"),
        ("patches", "export", "grpc"),
        ("no-such-command",),
    ],
)
def test_a_wrong_argument_exits_2(arguments: tuple[str, ...]) -> None:
    done = artf(*arguments)
    assert done.returncode == 2, done.stderr
    assert "Error: " in done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("patches", "edit", "no-such-tree", "/nowhere"), "no-such-tree"),
        (("bench", "recv", "--sizes", "4,many"), "many"),
        (("bench", "recv", "--protocols", "grpc/fast"), "'grpc/fast' is no way to run a protocol"),
        (("bench", "recv", "--protocols", "grpc@against"), "grpc@against has no wheel to run"),
        (("bench", "recv", "--peer", "host"), "'host' is no address; give HOST:PORT"),
        (("bench", "serve", "--listen", "7000"), "'7000' is no address; give HOST:PORT"),
        (("bench", "train", "--protocols", "grpc@upstream"), "grpc@upstream has no wheel to run"),
        (("bench", "recommender", "--mixes", "dlrm"), "there is no mix 'dlrm'"),
        (("bench", "allreduce", "--workers", "1"), "a ring needs two workers"),
    ],
)
def test_a_failure_exits_1_with_one_line(arguments: tuple[str, ...], named: str) -> None:
    done = artf(*arguments)
    assert done.returncode == 1, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("artf: ")
    assert named in last
    assert "; " in last


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = artf("build", ARTF_CACHE=str(blocked / "cache"))
    assert done.returncode == 1, done.stderr
    assert str(blocked) in done.stderr.strip().splitlines()[-1]


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "DISK_NEEDED", 1 << 60)
    with pytest.raises(ArtfError, match=r"MiB free, a build needs"):
        build.build()


def test_a_wheel_that_cannot_be_copied_leaves_dist_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist = tmp_path / "dist"
    dist.mkdir()
    (dist / "w.whl").write_bytes(b"old")
    monkeypatch.setattr(build, "DIST", dist)
    new = tmp_path / "w.whl"
    new.write_bytes(b"new")

    def full(source: Path, target: Path) -> None:
        target.write_bytes(b"n")
        raise OSError(28, "No space left on device", str(target))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", full)
        with pytest.raises(ArtfError, match="No space left on device"):
            build.publish(new)
    assert {p.name: p.read_bytes() for p in dist.iterdir()} == {"w.whl": b"old"}
    # A copy whose process was killed is swept; a live one's is not.
    (dist / ".w.whl.999999999").write_bytes(b"n")
    mine = dist / f".w.whl.{os.getpid()}"
    mine.write_bytes(b"n")
    build._sweep()
    assert {p.name for p in dist.iterdir()} == {"w.whl", mine.name}
    mine.unlink()
    assert build.publish(new).read_bytes() == b"new"


def test_a_new_platform_tag_replaces_the_old_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist = tmp_path / "dist"
    monkeypatch.setattr(build, "DIST", dist)
    for name in ("d-1-cp311-cp311-a.whl", "d-1-cp310-cp310-a.whl", "d-1-cp311-cp311-b.whl"):
        (tmp_path / name).write_bytes(name.encode())
        build.publish(tmp_path / name)
    assert {p.name for p in dist.iterdir()} == {"d-1-cp310-cp310-a.whl", "d-1-cp311-cp311-b.whl"}


def test_a_missing_tool_is_asked_for_by_exact_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    need = system.Need("a tool", ("no-such-tool",), {"apt": ("no-such-package",)}, "", False)
    monkeypatch.setattr(system, "needs", lambda: {"tool": need})
    monkeypatch.setattr(system, "family", lambda root=None: "apt")
    with pytest.raises(ArtfError) as asked:
        system.ensure_build_tools()
    assert asked.value.cure == (
        "as root run: apt-get update && apt-get install -y --no-install-recommends no-such-package"
    )
