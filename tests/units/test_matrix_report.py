"""The matrix's page and table from a result made by hand, and what its meter lets pass."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from common.paths import (
    DEVICE,
    MPI_RECEIVED,
    PMPI,
    RENDEZVOUS,
    STREAM,
    TCP,
    VERBS_RECEIVED,
    DataPath,
)
from common.protocols import MPI
from matrix import page
from matrix.meter import HANDSHAKES, Payload, assert_fabric, assert_path, carried
from matrix.page import FAILED, NOT_OFFERED, NOT_RUN, PASSED, SKIPPED

MIB = 2**20
SHM = DataPath("x/shm", "x", "shm", STREAM, RENDEZVOUS, {"X_FABRICS": "shm"})
VERBS = DataPath("x/verbs", "x", "verbs", STREAM, RENDEZVOUS, driver="rxe")
PLAIN = DataPath("plain", "plain", None, TCP, TCP)
BY_MPI = DataPath("x/mpi", MPI, None, MPI_RECEIVED, MPI_RECEIVED, mpi="an-mpi")


def cell(path: str, case: str, verdict: str, detail: str = "", **known: Any) -> dict[str, Any]:
    unknown: dict[str, Any] = {"milliseconds": None, "payload": 0, "carried": {}}
    return {"path": path, "case": case, "verdict": verdict, "detail": detail, **unknown, **known}


def a_result() -> page.Result:
    cells = [
        cell(
            *("plain", "scalars", PASSED),
            milliseconds=12,
            payload=100,
            carried={RENDEZVOUS: 0, STREAM: 0, TCP: 3 * MIB},
        ),
        cell("plain", "huge", NOT_OFFERED, "it ends <there>", milliseconds=12345),
        cell("plain", "deadline", NOT_RUN, "slow"),
        cell("x/shm", "scalars", FAILED, "E  <b>&amp; 3 bytes differ", milliseconds=7),
        cell("x/shm", "huge", SKIPPED, "needs memory"),
        cell(
            *("x/shm", "deadline", PASSED),
            milliseconds=1,
            payload=5,
            carried={RENDEZVOUS: 16 * MIB, STREAM: 2 * MIB, TCP: 99 * MIB},
        ),
    ]
    return {
        "origin": {"date": "2026-01-02 03:04 UTC", "commit": "abc", "wheel": "w.whl"},
        "seconds": 61.4,
        "paths": [
            {"name": path.name, "protocol": path.protocol, "environment": dict(path.env)}
            | {"small": path.small, "large": path.large}
            for path in (PLAIN, SHM)
        ],
        "cases": [
            {"name": "scalars", "group": "values", "proves": "one element"},
            {"name": "huge", "group": "values", "proves": "many elements"},
            {"name": "deadline", "group": "faults", "proves": "it ends in time"},
        ],
        "cells": cells,
        "counts": page.count(cells),
    }


class Outline(HTMLParser):
    """What a browser would see: cells by row, texts of error blocks, and what it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.errors: list[str] = []
        self.fetched: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "wbr"):
            self.open.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag in ("script", "link", "img", "iframe"):
            self.fetched.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "pre":
            self.errors.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data
        if "pre" in self.open:
            self.errors[-1] += data


def outline(result: page.Result) -> Outline:
    seen = Outline()
    seen.feed(page.html(result))
    seen.close()
    assert seen.open == []
    return seen


def test_the_page_has_a_cell_for_each_case_and_path() -> None:
    rows = [[" ".join(text.split()) for text in row] for row in outline(a_result()).rows]
    assert [len(row) for row in rows] == [3, 1, 3, 3, 1, 3]
    assert rows[0][2] == "x/shmX_FABRICS=shm"
    assert [row[0] for row in rows[1:]] == [
        *("values", "scalarsone element", "huge" + "many elements"),
        *("faults", "deadline" + "it ends in time"),
    ]
    assert rows[2][1].startswith("✓passed 3.0 MiB · 12 ms")
    assert "payload, at least 100 B" in rows[2][1] and f"{TCP} 3.0 MiB" in rows[2][1]
    assert rows[2][2].startswith("✗failed 7 ms error")
    assert rows[3][1] == "–not offered 12.3 s it ends <there>"
    assert rows[3][2] == "○skipped needs memory"
    assert rows[5][1] == "·not run: slow"
    # The other path's bytes are in the details, not in the cell's figure.
    assert rows[5][2].startswith("✓passed 18.0 MiB · 1 ms")


def test_the_page_shows_errors_as_they_are_and_fetches_nothing() -> None:
    seen = outline(a_result())
    assert seen.errors == ["E  <b>&amp; 3 bytes differ"]
    assert seen.fetched == []
    assert not re.search(r"url\(|@import|https?:", page.html(a_result()))


def test_counts_name_every_verdict() -> None:
    result = a_result()
    counts = {PASSED: 2, FAILED: 1, NOT_OFFERED: 1, SKIPPED: 1, NOT_RUN: 1}
    assert result["counts"] == counts
    summary = "2 passed, 1 failed, 1 not offered, 1 skipped, 1 not run"
    assert page.summary(result) == summary
    assert f"{summary} in 61 s" in page.table(result, colours=False)


def test_the_table_has_figures_where_there_are_some() -> None:
    lines = page.table(a_result(), colours=False).splitlines()
    (scalars,) = (line for line in lines if "scalars" in line)
    (deadline,) = (line for line in lines if "deadline" in line)
    assert "3.0 MiB 12 ms ✓" in scalars and "failed ✗" in scalars
    assert "not run ·" in deadline and "18.0 MiB 1 ms ✓" in deadline
    assert "\x1b" not in page.table(a_result(), colours=False)
    assert "\x1b" in page.table(a_result(), colours=True)


def test_the_table_names_every_case_and_path_however_many_there_are() -> None:
    result = a_result()
    long = [f"grpc+verbs/one-of-many-{number:02}" for number in range(11)]
    result["paths"] += [{**result["paths"][0], "name": path} for path in long]
    for path in long:
        for case in ("scalars", "huge", "deadline"):
            known: dict[str, Any] = {"carried": {TCP: 300 * MIB}, "milliseconds": 123456}
            ran = case == "scalars" and path != long[3]
            verdict = PASSED if ran else NOT_RUN
            result["cells"].append(cell(path, case, verdict, **known))
    lines = page.table(result, colours=False).splitlines()
    assert max(map(len, lines)) <= 200
    # Two whole tables of these twelve paths; the one that did not run is named below them.
    assert sum("300 MiB 123.5 s ✓" in line for line in lines) == 2
    assert "\n".join(lines).count("300 MiB 123.5 s ✓") == 10
    assert all(sum(path in line for line in lines) == 1 for path in long)
    assert [line for line in lines if long[3] in line] == [f"not run: {long[3]}"]
    assert sum("scalars" in line for line in lines) == 2


def test_the_table_leaves_out_what_did_not_run() -> None:
    result = a_result()
    for each in result["cells"]:
        if each["path"] == "x/shm" or each["case"] == "deadline":
            each["verdict"] = NOT_RUN
    shown = page.table(result, colours=False)
    assert "deadline" not in shown and "huge" in shown and "not run: x/shm" in shown


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (296 * 1024, "296 KiB"),
        (3 * MIB // 2, "1.5 MiB"),
        (2**31 + 8, "2.0 GiB"),
    ],
)
def test_sizes(amount: int, text: str) -> None:
    assert page.size(amount) == text


# --- the meter ------------------------------------------------------------------------------------


#: Counters of the classic channels, where nothing went by them.
NO_CLASSIC = {MPI_RECEIVED: 0, VERBS_RECEIVED: 0, PMPI: 0}


def says(stream: int = 0, rendezvous: int = 0, **connections: tuple[str, str, int]) -> Any:
    sockets = [
        {"inode": int(inode[1:]), "local": local, "remote": remote, "bytes_received": count}
        for inode, (local, remote, count) in connections.items()
    ]
    counted = {STREAM: stream, RENDEZVOUS: rendezvous, **NO_CLASSIC}
    return {**counted, "paths": {}, "connections": sockets}


def test_counters_grow_over_all_tasks_and_tcp_only_between_them() -> None:
    before = {"a": says(5, 0, n1=("a:1", "b:2", 100)), "b": says(0, 7, n2=("b:2", "a:1", 50))}
    after = {
        # A client's connection (n3) does not count, a new one between the tasks (n4) does.
        "a": says(6, 10, n1=("a:1", "b:2", 300), n3=("a:9", "c:1", 999), n4=("a:3", "b:4", 40)),
        "b": says(2, 7, n2=("b:2", "a:1", 55), n5=("b:4", "a:3", 1)),
    }
    assert carried(after, before) == {
        STREAM: 3,
        RENDEZVOUS: 10,
        TCP: 200 + 40 + 5 + 1,
        **NO_CLASSIC,
    }
    assert carried(after) == {STREAM: 8, RENDEZVOUS: 17, TCP: 300 + 40 + 55 + 1, **NO_CLASSIC}


def test_what_mpi_brought_is_counted_by_us_and_by_mpi() -> None:
    before = {"a": {**says(), MPI_RECEIVED: 5, PMPI: 6}}
    after = {"a": {**says(), MPI_RECEIVED: 9, PMPI: 11}, "b": {**says(), MPI_RECEIVED: 2, PMPI: 2}}
    grew = {MPI_RECEIVED: 6, PMPI: 7, VERBS_RECEIVED: 0}
    assert carried(after, before) == {STREAM: 0, RENDEZVOUS: 0, TCP: 0, **grew}


def test_a_device_is_counted_once_for_all_tasks() -> None:
    before = {"a": {**says(), DEVICE: 1000}, "b": {**says(), DEVICE: 1100}}
    after = {"a": {**says(), DEVICE: 5000}, "b": {**says(), DEVICE: 4900}}
    assert carried(after, before)[DEVICE] == 4000
    assert carried(after)[DEVICE] == 5000
    # A machine without a device has no such count.
    assert DEVICE not in carried({"a": {**says(), DEVICE: 0}})


def grown(
    stream: int = 0,
    rendezvous: int = 0,
    tcp: int = 0,
    device: int | None = None,
    mpi: int = 0,
    pmpi: int = 0,
) -> dict[str, int]:
    counted = {} if device is None else {DEVICE: device}
    own = {STREAM: stream, RENDEZVOUS: rendezvous, TCP: tcp}
    return {**own, **NO_CLASSIC, MPI_RECEIVED: mpi, PMPI: pmpi, **counted}


def test_a_payload_in_its_paths_own_counters_passes() -> None:
    payload = Payload(small=10, large=1000)
    assert_path(SHM, payload, grown(10, 1000, HANDSHAKES))
    # A tensor between the sizes may take either way.
    assert_path(SHM, payload, grown(5, 1005))
    assert_path(PLAIN, payload, grown(tcp=1010))
    assert_path(VERBS, payload, grown(10, 1000, HANDSHAKES, 1010))
    assert_path(PLAIN, Payload(), grown(tcp=1))
    assert_path(PLAIN, Payload(small=10, encoded=5), grown(tcp=15))
    # Its calls go over TCP, and so do the tensors that MPI does not bring.
    assert_path(BY_MPI, payload, grown(tcp=5 * MIB, mpi=1010, pmpi=1010))
    assert_path(BY_MPI, Payload(encoded=5), grown(tcp=5))


@pytest.mark.parametrize(
    ("path", "payload", "counts", "said"),
    [
        (SHM, Payload(10, 1000), grown(5, 1000), "carried 1005 bytes of at least 1010"),
        (SHM, Payload(10, 1000), grown(1010, 999), "counts 999 bytes of at least 1000"),
        (SHM, Payload(10), grown(10, 0, HANDSHAKES + 1), "went elsewhere"),
        (PLAIN, Payload(10), grown(1, 0, 10), "went elsewhere"),
        (PLAIN, Payload(10), grown(0, 1, 10), "went elsewhere"),
        (PLAIN, Payload(10), grown(0, 0, 10, mpi=1), "went elsewhere"),
        (PLAIN, Payload(10, encoded=5), grown(0, 0, 14), "carried 14 bytes of at least 15"),
        (BY_MPI, Payload(10), grown(tcp=100, mpi=9, pmpi=9), "carried 9 bytes of at least 10"),
        (BY_MPI, Payload(10), grown(tcp=100, mpi=10, pmpi=9), "MPI counts 9 bytes"),
        (BY_MPI, Payload(10), grown(10, 0, 100, mpi=10, pmpi=10), "went elsewhere"),
        (BY_MPI, Payload(encoded=5), grown(tcp=4), "responses carried 4 bytes of 5"),
        (PLAIN, Payload(), grown(), "carried 0 bytes of at least 1"),
        (VERBS, Payload(10, 1000), grown(10, 1000), "1010 bytes, its device 0 at most"),
        (VERBS, Payload(10, 1000), grown(10, 1000, 0, 1009), "its device 1009 at most"),
    ],
)
def test_a_payload_over_another_path_fails(
    path: DataPath, payload: Payload, counts: dict[str, int], said: str
) -> None:
    with pytest.raises(AssertionError, match=said):
        assert_path(path, payload, counts)


def test_connections_between_the_tasks_are_over_the_paths_fabric() -> None:
    over = {"paths": {"ipv4:a:1": "shm", "ipv4:client:9": "tcp"}}
    assert_fabric(SHM, [over], ["a:1"])
    with pytest.raises(AssertionError, match="connected over"):
        assert_fabric(PLAIN, [over], ["a:1"])
    for other in ({"ipv4:a:1": "tcp"}, {}):
        with pytest.raises(AssertionError, match="not shm"):
            assert_fabric(SHM, [{"paths": other}], ["a:1"])
    assert_fabric(PLAIN, [{"paths": {}}], ["a:1"])
