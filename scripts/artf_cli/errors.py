"""The one exception a user sees: what failed, and the cure."""

from __future__ import annotations


class ArtfError(Exception):
    """A failure with its cure; the command line prints `artf: what; cure` and exits 1."""

    def __init__(self, what: str, cure: str) -> None:
        super().__init__(f"{what}; {cure}")
        self.what = what
        self.cure = cure
