"""Ports that are held for servers."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import ports
import pytest

from common import processes


def test_a_held_port_is_nobody_elses() -> None:
    """Neither the kernel's to give away, nor to be had while it is held."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with ports.hold() as held, socket.socket() as other:
        address, port = held.getsockname()
        assert address == "127.0.0.1"
        assert 1024 <= port < low
        with pytest.raises(OSError) as refused:
            other.bind(("127.0.0.1", port))
        assert refused.value.errno == errno.EADDRINUSE
    with socket.socket() as server:
        server.bind(("0.0.0.0", port))


def test_a_port_that_is_taken_is_not_given() -> None:
    with ports.hold() as held:
        port = held.getsockname()[1]
    with ports.hold(set(range(1024, 65536)) - {port}) as again:
        assert again.getsockname()[1] == port


def test_suites_side_by_side_have_ports_of_their_own() -> None:
    """A port that is let go, to be bound later, is no other suite's to find free meanwhile."""
    taken = processes._Taken("2/17")
    given = []
    for _ in range(50):
        with ports.hold(taken) as held:
            given.append(held.getsockname()[1])
        taken.add(given[-1])
    assert {port % 17 for port in given} == {2}
    assert len(set(given)) == 50


def test_a_port_of_another_address() -> None:
    with ports.hold(host="127.0.0.2") as held:
        assert held.getsockname()[0] == "127.0.0.2"


def test_an_address_of_another_machine_is_an_error() -> None:
    with pytest.raises(OSError) as refused:
        ports.hold(host="192.0.2.1")
    assert refused.value.errno == errno.EADDRNOTAVAIL
