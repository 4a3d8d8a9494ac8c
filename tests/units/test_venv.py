"""Which environments stay in the cache."""

from __future__ import annotations

import os
from pathlib import Path

from artf_cli import venv


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
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*kept, *names[: venv.KEPT], unfinished.name}
