"""Verbs without a device, under the sanitizers: a virtual host has no room for their shadow."""

from __future__ import annotations

import pytest

from common import cpp
from common.verbs_programs import HOSTILE_TRANSFERS, TRANSFERS, WITHOUT_A_DEVICE

# The first one of a variant waits until all of it is compiled.
pytestmark = pytest.mark.timeout(1800)


@pytest.mark.parametrize("name", WITHOUT_A_DEVICE)
def test_what_needs_no_device(name: str) -> None:
    folder = cpp.build("verbs", [name], ["asan+ubsan"])
    assert "ok " in cpp.run(folder, "asan+ubsan", f"tests/verbs/{name}", 60).splitlines()[-1]


@pytest.mark.parametrize("variant", ["asan+ubsan", "tsan"])
def test_transfers_of_grpc_verbs(variant: str) -> None:
    """Over loopback, and where all ends late, out of order and on other threads."""
    folder = cpp.build("verbs", ["link_test"], [variant])
    said = cpp.run(folder, variant, "tests/verbs/link_test", 300)
    counts = {name: said.count(f"{name}: ") for name in ("loopback", "hostile", "late")}
    assert counts == {
        "loopback": len(TRANSFERS),
        "hostile": HOSTILE_TRANSFERS,
        "late": len(TRANSFERS),
    }
