"""The matrix's result as text for a terminal, and as one HTML page that needs no other file."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
from rich.console import Console
from rich.table import Column, Table
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
_WIDEST = 200  # characters; a table is as wide as its words
_MOST_PATHS = 6  # in one table, which has room for them beside the cases' names


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
    """The table for a terminal, a few paths at a time, and its counts below.

    Cases and paths of which nothing ran are left out; the page has them.
    """
    ran = [cell for cell in result["cells"] if cell["verdict"] != NOT_RUN]
    cases = {cell["case"] for cell in ran}
    all_paths = [path["name"] for path in result["paths"]]
    used = {cell["path"] for cell in ran}
    paths = [path for path in all_paths if path in used]
    into = io.StringIO()
    system: Any = "standard" if colours else None
    console = Console(file=into, width=_WIDEST, force_terminal=colours, color_system=system)
    for first in range(0, len(paths), _MOST_PATHS):
        console.print(_part(result, cases, paths[first : first + _MOST_PATHS]))
    if idle := [path for path in all_paths if path not in used]:
        console.print(f"not run: {', '.join(idle)}", highlight=False)
    console.print(f"{summary(result)} in {result['seconds']:.0f} s", highlight=False)
    return into.getvalue()


def _part(result: Result, cases: Collection[str], paths: Sequence[str]) -> Table:
    """Of these cases a row each, of these paths a column."""
    shown = Table(Column(no_wrap=True), Column("case", no_wrap=True))
    for path in paths:
        shown.add_column(path, justify="right", no_wrap=True)
    group = ""
    for case, cells in _rows(result):
        if case["name"] not in cases:
            continue
        if case["group"] != group and group:
            shown.add_section()
        name = "" if case["group"] == group else case["group"]
        group = case["group"]
        own = (_short(result, cell) for cell in cells if cell["path"] in paths)
        shown.add_row(name, case["name"], *own)
    return shown


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
