"""What a build shows of its progress, from lines that Bazel wrote."""

from __future__ import annotations

import pytest

from artf_cli import progress, steps


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that a build shows where standard error is no terminal."""
    shown: list[str] = []
    monkeypatch.setattr(steps, "note", shown.append)
    monkeypatch.setattr(progress, "note", shown.append)
    return shown


def feed(lines: str) -> None:
    """Lines that begin with the seconds at which Bazel wrote them."""
    now = [0.0]
    with steps.Steps("compile", clock=lambda: now[0]) as shown:
        for line in lines.strip().splitlines():
            seconds, _, text = line.partition(" ")
            now[0] = float(seconds)
            shown.take(f"{text}\n")


def test_the_time_left_follows_from_the_last_minute(notes: list[str]) -> None:
    lines = [
        f"{second} [{second} / 1,200] Compiling a.cc; 2s local" for second in range(0, 100, 10)
    ]
    lines += [
        f"{100 + second} [{100 + 5 * second} / 1,200] Linking b" for second in range(0, 121, 10)
    ]
    feed("\n".join(["0 INFO: Analyzed target", *lines]))
    assert notes[0] == "compile: 0 done, counting the rest"
    assert "compile: 90 of 1200, 18 min left: Compiling a.cc" in notes
    assert notes[-1] == "compile: 700 of 1200, 2 min left: Linking b"


def test_a_total_that_grows_after_all_is_corrected(notes: list[str]) -> None:
    feed("0 [1 / 9] a\n10 [2 / 9] b\n20 [12 / 40] c\n30 [13 / 40] d\n40 [14 / 40] e")
    assert [line.partition(",")[0] for line in notes] == [
        "compile: 1 done",
        "compile: 12 done",
        "compile: 14 of 40",
    ]
