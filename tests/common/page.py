"""The code of a page of the docs: what stands in its blocks, by the heading above each."""

from __future__ import annotations

import re
from pathlib import Path

_DOCS = Path(__file__).resolve().parents[2] / "docs"
CLUSTERS = _DOCS / "clusters.md"
PROTOCOLS = _DOCS / "protocols.md"


def blocks(page: Path, language: str = "sh") -> dict[str, str]:
    """Heading → its block; AssertionError where a heading has two."""
    found: dict[str, str] = {}
    heading = ""
    # Blocks of other languages, too: a comment in them is no heading.
    either = r"^#+ ([^\n]*)$|^```(\w+)\n(.*?)^```$"
    for line, of, code in re.findall(either, page.read_text(), re.M | re.S):
        if line:
            heading = line
        elif of == language:
            assert heading not in found, f"{page.name}: two blocks below {heading!r}"
            found[heading] = code
    return found


#: Those of docs/clusters.md.
PAGE = blocks(CLUSTERS)
