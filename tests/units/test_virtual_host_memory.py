"""How much memory the virtual host of some tests gets."""

from __future__ import annotations

import pytest

from common import virtual_host


class Item:
    """A test that wants `memory_mb` in its host."""

    def __init__(self, memory_mb: int) -> None:
        self._marker = pytest.mark.virtual_host("rxe", memory_mb=memory_mb).mark

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        assert name == "virtual_host"
        return [self._marker]


def given(
    monkeypatch: pytest.MonkeyPatch, wanted: list[int], spare: list[int], patience_s: float = 5
) -> tuple[int, int]:
    """(MiB, looks) where the machine has `spare` MiB, each at one look and the last for ever."""
    left = list(spare)
    looks = []

    def look() -> int:
        looks.append(left[0])
        return left.pop(0) if len(left) > 1 else left[0]

    monkeypatch.setattr(virtual_host, "_spare_mb", look)
    monkeypatch.setattr(virtual_host, "_most_mb", lambda: 20000)
    return virtual_host.memory_mb(map(Item, wanted), patience_s), len(looks)  # type: ignore[arg-type]


def test_the_usual_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given(monkeypatch, [0, 4096], [100]) == (6144, 0)


def test_the_most_that_a_test_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given(monkeypatch, [0, 15360, 9000], [15360]) == (15360, 1)


def test_what_is_given_back_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given(monkeypatch, [15360], [9000, 9000, 16000]) == (15360, 3)


def test_what_is_not_there_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    megabytes, looks = given(monkeypatch, [15360], [9000], patience_s=0.2)
    assert megabytes == 6144
    assert looks > 1


def test_what_never_can_be_there_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given(monkeypatch, [30000], [19000]) == (6144, 1)
