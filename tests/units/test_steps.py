"""What a build shows of its progress, from lines that Bazel wrote."""

from __future__ import annotations

import re

import pytest

from artf_cli import progress, steps

# What Bazel wrote in builds of //build:wheel with --jobs=200, and with as many jobs as cores: some
# lines of each, without folders.
EARLY = """
[0 / 3] [Prepa] BazelWorkspaceStatusAction stable-status.txt
[36 / 520] [Prepa] Compiling sockaddr_utils.cc ... (89 actions, 14 running)
[138 / 520] Compiling memory_quota.cc; 11s local, remote-cache ... (202 actions, 85 running)
[171 / 520] Compiling string_windows.cc; 22s remote-cache ... (244 actions, 107 running)
[310 / 520] Compiling tcp_windows.cc; 50s remote-cache ... (349 actions, 168 running)
[344 / 520] Compiling message_decompress_filter.cc; 95s remote-cache ... (344 actions, 174 running)
[370 / 520] Compiling thd_windows.cc; 163s remote-cache ... (292 actions, 149 running)
[419 / 520] Compiling trace.cc; 257s remote-cache ... (194 actions, 100 running)
[472 / 520] Compiling health_check_client.cc; 333s remote-cache ... (88 actions, 46 running)
"""
LATE = """
[0 / 3] [Prepa] BazelWorkspaceStatusAction stable-status.txt
[11 / 50] Compiling grpc_eager_client.cc; 4s local ... (2 actions, 1 running)
[43 / 51] Compiling grpc_master_service.cc; 8s local ... (2 actions, 1 running)
[64 / 457] Compiling create_default_thread_pool.cc; 1s local ... (2 actions, 1 running)
[407 / 457] Compiling retry_filter.cc; 4s local ... (2 actions, 1 running)
[458 / 483] Compiling promise_based_filter.cc; 11s local ... (2 actions, 1 running)
"""


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


def test_the_total_of_a_build_does_not_grow(notes: list[str]) -> None:
    lines = EARLY.strip().splitlines()
    feed("\n".join(f"{20 * i} {line}" for i, line in enumerate(lines)))
    assert notes[0] == "compile: 0 done, counting the rest"
    assert {found for line in notes for found in re.findall(r" of (\d+)", line)} == {"520"}


def test_what_bazel_has_not_come_upon_is_not_taken_for_a_total(notes: list[str]) -> None:
    lines = LATE.strip().splitlines()
    feed("\n".join(f"{20 * i} {line}" for i, line in enumerate(lines)))
    assert notes[-1] == "compile: 458 done, counting the rest"


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
