"""`artf test --full`: every test there is, part by part, and the record of the last such run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from artf_cli.bench import record as provenance
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
        commit, files = clean_commit(), provenance.files()
        begin = time.monotonic()
        result = run([], needs, [], full=True, part=name)
        if not part:
            result.deselected.pop(_ELSEWHERE, None)
        total.include(result)
        # The commit may be another one by now: the result of another part, say.
        if commit and clean_commit() and provenance.files() == files:
            record(RECORD, name, commit, files, result, time.monotonic() - begin)
            note(f"recorded part {name} in {RECORD.relative_to(REPO)}")
        else:
            note(f"not recorded, since files are not committed, or changed meanwhile: part {name}")
    return total


def clean_commit(root: Path = REPO) -> str:
    """The commit that the work tree equals, docs/ aside; empty when it equals none."""
    found = provenance.commit(root)
    return "" if found == "unknown" or found.endswith("-dirty") else found


def record(path: Path, part: str, commit: str, files: str, result: Result, seconds: float) -> None:
    """Writes a part's result into the record; those of other files, docs/ aside, go."""
    kept: dict[str, Any] = {}
    if path.exists():
        before = json.loads(path.read_text())
        if before.get("files") == files:
            kept = before["parts"]
    kept[part] = {
        "commit": commit,
        "date": provenance.now(),
        "machine": provenance.machine(),
        "seconds": round(seconds, 1),
        **result.summary(),
    }
    done = [kept[name] for name in PARTS if name in kept]
    whole = {
        "files": files,
        "missing_parts": [name for name in PARTS if name not in kept],
        **{name: sum(each[name] for each in done) for name in ("passed", "failed", "skipped")},
        "parts": kept,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(whole, indent=1, sort_keys=True) + "\n")
