"""`artf test --full`: every test there is, part by part, and the record of the last such run."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil

from artf_cli.console import note
from artf_cli.paths import REPO
from artf_cli.testing.report import Result, write_whole
from artf_cli.testing.run import Needs, run
from artf_cli.testing.suites import PARTS

#: What the last full run did, by part, with the commit and the machine.
RECORD = REPO / "docs" / "measured" / "full.json"
#: Why a part leaves cases out that are no one's loss: tests/conftest.py says it so.
_ELSEWHERE = "in another part of --full"


def run_parts(needs: Needs, part: str = "") -> Result:
    """Runs a part, or all of them one after another; each is recorded as it ends.

    Raises ArtfError as `run` does.
    """
    total = Result()
    for name in [part] if part else PARTS:
        note(f"part {name} of {', '.join(PARTS)}")
        commit = clean_commit()
        begin = time.monotonic()
        result = run([], needs, [], full=True, part=name)
        if not part:
            result.deselected.pop(_ELSEWHERE, None)
        total.include(result)
        if commit and clean_commit() == commit:
            record(RECORD, name, commit, result, time.monotonic() - begin)
            note(f"recorded part {name} in {RECORD.relative_to(REPO)}")
        else:
            note(f"not recorded, since files differ from the commit: part {name}")
    return total


def _git(root: Path, *words: str) -> str | None:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def clean_commit(root: Path = REPO) -> str:
    """The commit that the work tree equals, docs/ aside; empty when it equals none."""
    # The record itself lies in docs/, and the next part must not take it for a change.
    if _git(root, "status", "--porcelain", "--", ":/", ":(top,exclude)docs") != "":
        return ""
    return _git(root, "rev-parse", "HEAD") or ""


def _machine() -> dict[str, Any]:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": platform.release(),
        "glibc": platform.libc_ver()[1],
    }


def record(path: Path, part: str, commit: str, result: Result, seconds: float) -> None:
    """Writes a part's result into the record; those of another commit go."""
    kept: dict[str, Any] = {}
    if path.exists():
        before = json.loads(path.read_text())
        if before.get("commit") == commit:
            kept = before["parts"]
    now = datetime.datetime.now(datetime.timezone.utc)
    kept[part] = {
        "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": _machine(),
        "seconds": round(seconds, 1),
        **result.summary(),
    }
    done = [kept[name] for name in PARTS if name in kept]
    whole = {
        "commit": commit,
        "missing_parts": [name for name in PARTS if name not in kept],
        **{name: sum(each[name] for each in done) for name in ("passed", "failed", "skipped")},
        "parts": kept,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(whole, indent=1, sort_keys=True) + "\n")
