"""What the suites did: counted from pytest's reports, added up, kept from one call to the next."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from artf_cli.errors import ArtfError
from artf_cli.paths import REPO

#: Of what a failure says the closing lines have so many characters.
_MOST_OF_A_FAILURE = 600
#: Why pytest left cases out that tests/conftest.py did not.
_OWN_ARGUMENTS = "by pytest's own arguments"


@dataclass
class Result:
    """What all suites together did."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    #: By suite: passed, failed, skipped, the seconds of its tests, and those of its pytest, by the
    #: clock and of processors.
    suites: dict[str, dict[str, float]] = field(default_factory=dict)
    skips: list[dict[str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    #: Cases that were left out, by the reason.
    deselected: dict[str, int] = field(default_factory=dict)
    #: Each case's name and seconds, its own fixtures included.
    cases: list[tuple[str, float]] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        """The closing line, and how many cases were left out and why."""
        why = ", ".join(f"{reason} {count}" for reason, count in sorted(self.deselected.items()))
        return [
            f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped",
            f"{sum(self.deselected.values())} deselected{': ' if why else ''}{why}",
        ]

    def slowest(self, count: int) -> list[tuple[str, float]]:
        """The `count` cases that took longest."""
        return sorted(self.cases, key=lambda case: -case[1])[:count]

    def add(self, suite: str, report: Path, left_out: Path) -> None:
        """Adds the JUnit report of a suite, and what tests/conftest.py says it left out."""
        counts = {"passed": 0, "failed": 0, "skipped": 0}
        seconds = 0.0
        for case in ElementTree.parse(report).iter("testcase"):
            if not case.get("name"):
                continue  # the one that was interrupted
            name = f"{case.get('classname', '')}::{case.get('name', '')}"
            took = float(case.get("time", 0))
            seconds += took
            self.cases.append((name, took))
            skip = case.find("skipped")
            wrong = case.find("failure")
            if wrong is None:
                wrong = case.find("error")
            if wrong is not None:
                counts["failed"] += 1
                self.failures.append(f"{name}: {_said(wrong)}")
            elif skip is not None:
                counts["skipped"] += 1
                self.skips.append({"test": name, "reason": skip.get("message", "")})
            else:
                counts["passed"] += 1
        self._count(suite, {**counts, "seconds": seconds})
        if left_out.exists():
            for reason, count in json.loads(left_out.read_text()).items():
                why = reason or _OWN_ARGUMENTS
                self.deselected[why] = self.deselected.get(why, 0) + int(count)

    def took(self, suite: str, wall_s: float, cpu_s: float) -> None:
        """Adds what the pytest of a suite that did something took, with what it waited for."""
        if suite in self.suites:
            self._count(suite, {"wall_s": wall_s, "cpu_s": cpu_s})

    def fail(self, suite: str, what: str) -> None:
        """Counts something of a suite that is no case of it as a failure."""
        self._count(suite, {"passed": 0, "failed": 1, "skipped": 0, "seconds": 0.0})
        self.failures.append(f"{suite}: {what}")

    def _count(self, suite: str, counts: dict[str, float]) -> None:
        total = self.suites.setdefault(suite, {})
        for name, count in counts.items():
            total[name] = round(total.get(name, 0) + count, 1)
        self.passed += int(counts.get("passed", 0))
        self.failed += int(counts.get("failed", 0))
        self.skipped += int(counts.get("skipped", 0))

    def include(self, other: Result) -> None:
        """Adds all that `other` counted."""
        for suite, counts in other.suites.items():
            self._count(suite, counts)
        self.skips += other.skips
        self.failures += other.failures
        self.cases += other.cases
        for why, count in other.deselected.items():
            self.deselected[why] = self.deselected.get(why, 0) + count

    def summary(self) -> dict[str, Any]:
        """All but the single cases, for JSON."""
        return {name: value for name, value in asdict(self).items() if name != "cases"}


def _said(failure: ElementTree.Element) -> str:
    """What a failed case said, in one line: of a long log sometimes only the end is left.

    pytest marks those lines by an E; the report's message lacks the later ones. Of a long text
    its two ends: a message of one's own comes first, what was compared last.
    """
    marked = [line[1:] for line in (failure.text or "").splitlines() if line.startswith("E ")]
    said = " ".join(" ".join(marked or [failure.get("message", "")]).split())
    half = _MOST_OF_A_FAILURE // 2
    return said if len(said) <= _MOST_OF_A_FAILURE else f"{said[:half]} … {said[-half:]}"


def tree_hash(root: Path = REPO) -> str:
    """One hash of all files of the work tree that git does not ignore, as they are now."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if listed.returncode != 0:
        raise ArtfError(f"{root} is no git checkout", "make one: results are of one tree's files")
    digest = hashlib.sha256()
    for name in sorted(set(listed.stdout.split("\0"))):
        path = root / name
        if path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{name}\0{content}\0".encode())
    return digest.hexdigest()


def load(path: Path) -> Result:
    """The results that `save` kept, or empty ones; ArtfError if they are of another tree."""
    if not path.exists():
        return Result()
    cure = "delete it, or name another file"
    try:
        kept = json.loads(path.read_text())
        tree, result = kept["tree"], Result(**kept["result"])
    except (ValueError, KeyError, TypeError):
        raise ArtfError(f"{path} has no results of `artf test --resume`", cure) from None
    if tree != tree_hash():
        raise ArtfError(f"the results in {path} are of other files than this tree's", cure)
    result.cases = [(name, seconds) for name, seconds in result.cases]
    return result


def save(path: Path, result: Result, tree: str) -> None:
    """Keeps results of `tree` (what `tree_hash` said before the run) for `load`."""
    write_whole(path, json.dumps({"tree": tree, "result": asdict(result)}))


def write_whole(path: Path, text: str) -> None:
    """Writes a file in one step; ArtfError when it cannot be written."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text)
        partial.replace(path)
    except OSError as error:
        raise ArtfError(
            f"cannot write {path}: {error.strerror}", "make room there, or name another file"
        ) from None
    finally:
        partial.unlink(missing_ok=True)
