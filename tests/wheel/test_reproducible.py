"""The same bytes from another folder and an empty cache."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from artf_cli import pins
from artf_cli.paths import REPO


@pytest.mark.timeout(2400)
def test_two_builds_from_empty_caches_give_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    tree = tmp_path / "another" / "folder"
    tree.parent.mkdir()
    shutil.copytree(
        REPO, tree, ignore=shutil.ignore_patterns("dist", ".git", "bazel-*", "__pycache__")
    )
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    env["ARTF_CACHE"] = str(tmp_path / "cache")
    python = wheel.name.split("-")[2]
    command = [str(tree / "scripts/artf"), "build", "--python", python, "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout.splitlines()[-1])
    again = Path(report["wheel"])
    assert again.parent == tree / "dist"
    assert again.name == wheel.name
    assert pins.sha256_of(again) == pins.sha256_of(wheel)
    # What a second build with nothing changed costs: seconds.
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=tmp_path)
    second = json.loads(done.stdout.splitlines()[-1])
    assert second["build_seconds"] < 60, second
    assert pins.sha256_of(again) == pins.sha256_of(wheel)
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
