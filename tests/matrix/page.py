"""The matrix's result as text for a terminal, and as one HTML page that needs no other file."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
from rich.console import Console
from rich.table import Table
from rich.text import Text

PASSED, FAILED, NOT_OFFERED = "passed", "failed", "not offered"
SKIPPED, NOT_RUN = "skipped", "not run"

#: What matrix.json holds.
Result = dict[str, Any]

#: Each verdict's sign, its colour in a terminal, and what it says; in the order of the legend.
VERDICTS: dict[str, tuple[str, str, str]] = {
    PASSED: ("✓", "green", "right values, and the payload in the path's own counters"),
    FAILED: ("✗", "bold red", "open it for the error"),
    NOT_OFFERED: ("–", "blue", "the path cannot, and was seen to behave as its entry says"),
    SKIPPED: ("○", "yellow", "this machine lacks what the case needs"),
    NOT_RUN: ("·", "dim", "left out of this run"),
}
_TEMPLATE = "page.html.j2"
_WIDEST = 200  # characters; the table is as wide as its words


def count(cells: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many cells have each verdict, all verdicts named."""
    found = Counter(cell["verdict"] for cell in cells)
    return {verdict: found[verdict] for verdict in VERDICTS}


def size(amount: int) -> str:
    """Bytes with three digits at most, but for bytes and KiB below one MiB: 17.0 MiB, 1023 B."""
    value, unit = float(amount), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1023.5:
            break
        value, unit = value / 1024, larger
    return f"{amount} B" if unit == "B" else f"{value:.{0 if value >= 99.95 else 1}f} {unit}"


def duration(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:.1f} s"


def own_bytes(result: Result, cell: Mapping[str, Any]) -> int:
    """What the cell's path carried, by the counters that prove it."""
    path = next(path for path in result["paths"] if path["name"] == cell["path"])
    names = {path["small"], path["large"]}
    return sum(amount for name, amount in cell["carried"].items() if name in names)


def _rows(result: Result) -> Iterable[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each case with its cells, one a path."""
    cells = {(cell["path"], cell["case"]): cell for cell in result["cells"]}
    for case in result["cases"]:
        yield case, [cells[path["name"], case["name"]] for path in result["paths"]]


def summary(result: Result) -> str:
    """The counts in one line, those of none left out."""
    counts = result["counts"].items()
    return ", ".join(f"{number} {verdict}" for verdict, number in counts if number)


def table(result: Result, colours: bool) -> str:
    """The table for a terminal, and its counts below."""
    shown = Table("", "case")
    for path in result["paths"]:
        shown.add_column(path["name"], justify="right", no_wrap=True)
    group = ""
    for case, cells in _rows(result):
        if case["group"] != group and group:
            shown.add_section()
        name = "" if case["group"] == group else case["group"]
        group = case["group"]
        shown.add_row(name, case["name"], *(_short(result, cell) for cell in cells))
    into = io.StringIO()
    system: Any = "standard" if colours else None
    console = Console(file=into, width=_WIDEST, force_terminal=colours, color_system=system)
    console.print(shown)
    console.print(f"{summary(result)} in {result['seconds']:.0f} s", highlight=False)
    return into.getvalue()


def _short(result: Result, cell: Mapping[str, Any]) -> Text:
    """A passed cell's bytes and time, else its verdict."""
    sign, style, _ = VERDICTS[cell["verdict"]]
    words = cell["verdict"]
    if cell["verdict"] == PASSED:
        words = f"{size(own_bytes(result, cell))} {duration(cell['milliseconds'])}"
    return Text(f"{words} {sign}", style=style)


def html(result: Result) -> str:
    """The page: style and all in one text, no script, nothing fetched."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(size=size, duration=duration)
    groups = [
        (group, list(rows)) for group, rows in groupby(_rows(result), lambda row: row[0]["group"])
    ]
    return environment.get_template(_TEMPLATE).render(
        result=result,
        groups=groups,
        verdicts=VERDICTS,
        summary=summary(result),
        own_bytes=lambda cell: own_bytes(result, cell),
    )
