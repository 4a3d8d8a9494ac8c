"""What the tests' C++ programs say."""

from __future__ import annotations


def values(text: str) -> dict[str, str]:
    """By their names, the values of lines "name value"; other lines are remarks."""
    return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
