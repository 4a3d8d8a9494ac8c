"""The servers that follow a script: what the tests of a client rely on."""

from __future__ import annotations

from contextlib import closing

from common.scripted import Scripted, connected


def test_no_address_is_used_again() -> None:
    """What a client remembers of one server is said of no other; each can be reached."""
    addresses = []
    for _ in range(400):
        with closing(Scripted(backend=None)) as server:
            connected(server.address).close()
            addresses.append(server.address)
    assert len(set(addresses)) == len(addresses)
