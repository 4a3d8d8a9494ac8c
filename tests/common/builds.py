"""Builds as a user starts them.

Through `scripts/artf`: under another Python, such as the one that runs the tests, Bazel unpacks the
base wheel again before it sees that nothing changed.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from artf_cli.paths import REPO


def build(
    *arguments: str,
    tree: Path = REPO,
    before: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """What `artf build ARGUMENTS --json` says in `tree`; `before` are words such as `nice`.

    Raises AssertionError with the end of its output when it fails.
    """
    settings = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [*before, str(tree / "scripts/artf"), "build", *arguments, "--json"]
    done = subprocess.run(
        command, env={**settings, **(env or {})}, capture_output=True, text=True, cwd=tree
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said
