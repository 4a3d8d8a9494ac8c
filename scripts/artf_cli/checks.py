"""One finding of the doctor's, as all of its parts give it."""

from __future__ import annotations

from typing import TypedDict

OK, WARN, MISSING = "ok", "warn", "missing"


class Check(TypedDict):
    """`missing` stops a build, `warn` does not; `cure` is empty when all is well."""

    name: str
    status: str
    detail: str
    cure: str


def check(name: str, status: str, detail: str, cure: str = "") -> Check:
    """A finding, without the cure where all is well."""
    return Check(name=name, status=status, detail=detail, cure="" if status == OK else cure)
