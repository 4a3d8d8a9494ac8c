"""Which environments stay in the cache, and what several runs of artf do to each other's."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from concurrent import futures
from pathlib import Path

from artf_cli import venv

# A uv that makes an environment of nothing, and takes its time to install.
UV = """#!/bin/sh
[ "$1" = python ] || echo "$1" >>"$CALLS"
case $1 in
  python) echo "$0" ;;
  venv) for root; do :; done; mkdir -p "$root/bin" && cp "$0" "$root/bin/python" ;;
  pip) sleep 0.2 ;;
esac
"""
MAKE = """
import sys
from pathlib import Path
from artf_cli import venv
print(venv.make(Path(sys.argv[1]), sys.argv[2]), flush=True)
sys.stdin.read()
"""


class Artf:
    """Processes that ask for environments in a cache of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        self.uv = folder / "uv"
        self.uv.write_text(UV)
        self.uv.chmod(0o755)
        self.venvs = folder / "cache" / "venvs"

    def start(
        self, wheel: str, requirements: str = venv.RUNTIME, stderr: int | None = None
    ) -> subprocess.Popen[str]:
        """One that makes the environment of a wheel and ends with its standard input."""
        path = self.folder / f"{wheel}-1-cp311-cp311-any.whl"
        path.write_text(wheel)
        named = {"ARTF_CACHE": self.folder / "cache", "ARTF_UV": self.uv, "CALLS": self.calls}
        env = {**os.environ, **{name: str(value) for name, value in named.items()}}
        command = [sys.executable, "-c", MAKE, str(path), requirements]
        return subprocess.Popen(
            command,
            env=env,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )

    def make(self, wheel: str, requirements: str = venv.RUNTIME) -> Path:
        """The Python of one that has ended."""
        process = self.start(wheel, requirements)
        said, _ = process.communicate("", timeout=30)
        assert process.returncode == 0
        return Path(said.strip())


def test_two_that_want_the_same_environment_make_it_once(tmp_path: Path) -> None:
    artf = Artf(tmp_path)
    both = [artf.start("w") for _ in range(2)]
    said = [process.communicate("", timeout=30)[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0] == said[1]
    assert Path(said[0]).exists()
    assert artf.calls.read_text().split() == ["venv", "pip", "pip", "pip"]


def test_whoever_waited_for_an_environment_shares_it(tmp_path: Path) -> None:
    artf = Artf(tmp_path)
    root = artf.make("w").parents[1]
    (root / "READY").unlink()
    # Holding it in use makes both find it unfinished before either may make it.
    with root.with_name(f"{root.name}.lock").open("a") as user:
        fcntl.flock(user, fcntl.LOCK_SH)
        both = [artf.start("w", stderr=subprocess.PIPE) for _ in range(2)]
        for process in both:
            assert process.stderr is not None
            assert "waiting for it" in process.stderr.readline()
    # Neither has ended when both have it.
    with futures.ThreadPoolExecutor() as pool:
        lines = [pool.submit(process.stdout.readline) for process in both if process.stdout]
        done, _ = futures.wait(lines, timeout=15)
        for process in both:
            process.communicate("", timeout=30)
    assert len(done) == 2
    assert {line.result().strip() for line in lines} == {str(root / "bin" / "python")}
    assert artf.calls.read_text().split() == ["venv", "pip", "pip", "pip"] * 2


def test_what_a_killed_one_began_is_over_before_the_next_begins(tmp_path: Path) -> None:
    """Its uv goes on writing, and holds the lock for as long."""
    artf = Artf(tmp_path)
    go_on = tmp_path / "go on"
    wait = f"while [ ! -e '{go_on}' ]; do sleep 0.05; done"
    artf.uv.write_text(UV.replace("sleep 0.2", wait))
    process = artf.start("w")
    while not artf.calls.exists() or "pip" not in artf.calls.read_text():
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.communicate(timeout=30)
    artf.uv.write_text(UV)
    following = artf.start("w", stderr=subprocess.PIPE)
    assert following.stderr is not None
    assert "waiting for it" in following.stderr.readline()
    assert artf.calls.read_text().split() == ["venv", "pip"]
    go_on.touch()
    said, _ = following.communicate("", timeout=30)
    assert Path(said.strip()).exists()
    assert artf.calls.read_text().split() == ["venv", "pip", "venv", "pip", "pip", "pip"]


def test_one_that_fails_leaves_it_to_the_next(tmp_path: Path) -> None:
    artf = Artf(tmp_path)
    artf.uv.write_text("#!/bin/sh\nexit 1\n")
    process = artf.start("w")
    process.communicate("", timeout=30)
    assert process.returncode == 1
    artf.uv.write_text(UV)
    assert artf.make("w").exists()


def test_what_another_artf_uses_is_not_swept(tmp_path: Path) -> None:
    artf = Artf(tmp_path)
    user = artf.start("used")
    try:
        assert user.stdout is not None
        used = Path(user.stdout.readline().strip()).parents[1]
        os.utime(used / "READY", (1, 1))
        others = [artf.venvs / f"runtime-{n:012x}-01234567" for n in range(venv.KEPT + 1)]
        for age, root in enumerate(others):
            root.mkdir()
            (root / "READY").touch()
            os.utime(root / "READY", (1000 - age, 1000 - age))
        venv.sweep(artf.venvs, "runtime")
        assert [root.exists() for root in (used, *others)] == [True, True, True, True, False]
    finally:
        user.communicate("", timeout=30)
    venv.sweep(artf.venvs, "runtime")
    assert [root.exists() for root in (used, *others)] == [False, True, True, True, False]


def test_the_environments_used_longest_ago_go(tmp_path: Path) -> None:
    kept = ["runtime-tests-0123456789ab-01234567", "runtime-mine", "runtime-0123456789ab-0123456"]
    names = [f"runtime-{n:012x}-01234567" for n in range(6)]
    for age, name in enumerate([*kept, *names]):
        mark = tmp_path / name / "READY"
        mark.parent.mkdir()
        mark.touch()
        os.utime(mark, (1000 - age, 1000 - age))
    unfinished = tmp_path / "runtime-ffffffffffff-01234567"
    unfinished.mkdir()
    venv.sweep(tmp_path, "runtime")
    left = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert left == {*kept, *names[: venv.KEPT], unfinished.name}
