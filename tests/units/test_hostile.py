"""The `hostile` suite's table and its attacks."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from artf_cli import cluster
from artf_cli.bench import hostile

#: The attacking program's functions.
PEER = runpy.run_path(str(Path(cluster.__file__).with_name("runtime") / "hostile_peer.py"))


def row(attack: str, protocol: str, cpu_s: float, number: int = 0) -> hostile.Row:
    return hostile.Row(
        bench="hostile",
        protocol=protocol,
        round=number,
        attack=attack,
        size=1,
        sent=1,
        closed=False,
        status=None,
        cpu_s=cpu_s,
        peak_bytes=3 << 20,
        kept_bytes=1 << 20,
        seconds=1.0,
    )


ROWS = [
    row("bomb", "grpc+ar@against", 2),
    row("header", "grpc+ar@against", 9.126),
    row("header", "grpc", 0.051),
    row("header", "grpc", 7.0, 1),
    row("header", "grpc", 0.049, 2),
]


def test_a_line_for_each_attack_and_a_cell_for_each_protocol() -> None:
    """Of several rounds the median, here of 0.049, 0.051 and 7 seconds."""
    assert hostile.lines(ROWS) == (
        ["grpc+ar@against", "grpc"],
        [
            ["a header of 16 MiB", "9.13 s, 3 MiB (1)", "0.05 s, 3 MiB (1)"],
            ["a message that inflates to 3 GiB", "2.00 s, 3 MiB (1)", ""],
        ],
    )


def test_every_attack_is_one_of_the_peer() -> None:
    assert {attack.name for attack in hostile.ATTACKS} <= set(PEER["ATTACKS"])


@pytest.mark.parametrize(
    ("value", "bits", "encoded"),
    [(10, 5, b"\x0a"), (1337, 5, b"\x1f\x9a\x0a"), (42, 8, b"\x2a"), (127, 7, b"\x7f\x00")],
)
def test_integers_of_hpack(value: int, bits: int, encoded: bytes) -> None:
    """The examples of RFC 7541, C.1."""
    assert PEER["integer"](value, bits) == encoded


def test_a_frame_of_http2() -> None:
    made = PEER["frame"](PEER["PING"], 0, 3, b"12345678")
    assert made == b"\0\0\x08\x06\0\0\0\0\x0312345678"
