"""What of a process's end counts as sleep (common.asleep)."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.processes import run_program


@pytest.mark.parametrize(
    ("ends", "least", "most"),
    [
        ("time.sleep(2)", 1.5, 3.0),
        ("while time.monotonic() < begin + 2: pass", 0.0, 0.5),
        # Of many threads one is enough.
        (
            "threads = [threading.Thread(target=time.sleep, args=(2,)) for _ in range(20)]\n"
            "for thread in threads: thread.start()\n"
            "while time.monotonic() < begin + 2: pass",
            0.0,
            0.5,
        ),
    ],
    ids=["sleeps", "works", "has threads that sleep"],
)
def test_what_a_program_sleeps(tmp_path: Path, ends: str, least: float, most: float) -> None:
    script = tmp_path / "ends.py"
    head = "import threading, time\nprint('said', flush=True)\nbegin = time.monotonic()\n"
    script.write_text(head + ends)
    outcome = run_program(script, {})
    assert outcome.status == 0, outcome.report()
    assert outcome.slept is not None
    assert least <= outcome.slept <= most


def test_a_program_that_says_nothing(tmp_path: Path) -> None:
    script = tmp_path / "says_nothing.py"
    script.write_text("import time; time.sleep(0.3)")
    assert run_program(script, {}).slept is None
