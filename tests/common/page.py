"""The commands of a page of the docs: what stands in a block of `sh`, by the heading above it."""

from __future__ import annotations

import re
from pathlib import Path

from artf_cli.paths import REPO

CLUSTERS = REPO / "docs" / "clusters.md"


def blocks(page: Path) -> dict[str, str]:
    """Heading → its block; AssertionError where a heading has two."""
    found: dict[str, str] = {}
    heading = ""
    either = r"^#+ ([^\n]*)$|^```sh\n(.*?)^```$"
    for line, code in re.findall(either, page.read_text(), re.M | re.S):
        if line:
            heading = line
            continue
        assert heading not in found, f"{page.name}: two blocks below {heading!r}"
        found[heading] = code
    return found


#: Those of docs/clusters.md.
PAGE = blocks(CLUSTERS)
