"""The tables of docs/measured.md and docs/protocols.md, made from the raw rows in docs/measured/.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`, and the record of a file of rows
between `<!-- record: FILE -->` and `<!-- end -->`. What is between them is written here, when rows
are, or by `scripts/artf bench render`, and by nobody else.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from artf_cli.bench import hostile, recommender, record, recv
from artf_cli.bench.sizes import Size
from artf_cli.bench.table import duration, spread_of
from artf_cli.bench.traffic import NOTHING
from artf_cli.errors import ArtfError
from artf_cli.paths import REPO
from artf_cli.variants import AR, MPI, STOCK, VERBS

PAGE = REPO / "docs" / "measured.md"
FOLDER = REPO / "docs" / "measured"
_END = "<!-- end -->"
#: What stands for a record whose rows were taken out, as a change has made them old.
NOT_MEASURED = "*Not measured yet on this version.*\n"
_BLOCK = re.compile(
    r"<!-- (table|record): ([a-z0-9.-]+) -->\n(?:.*?\n)??" + re.escape(_END), re.DOTALL
)


class FaultRow(TypedDict):
    """What follows a fault of an RDMA device of this driver, after so many seconds, each time."""

    fault: str
    driver: str
    seen: str
    seconds: list[float]


#: Rows as `record.read` gives them.
Rows = Sequence[Mapping[str, Any]]


def markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; every line has as many cells as the header."""
    rows = [header, ["---"] * len(header), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def times(ratio: float | None, interval: Sequence[float] | None) -> str:
    """A ratio with its interval: `2.50 (2.31–2.64)`; nothing where there is none."""
    if ratio is None:
        return ""
    return f"{ratio:.2f}" + (f" ({interval[0]:.2f}–{interval[1]:.2f})" if interval else "")


def _grid(
    rows: Rows,
    keys: Sequence[str],
    name: Callable[[Any], Sequence[str]],
    first: Callable[[Any], str],
    others: Callable[[Any], str],
) -> str:
    """A line for each `name` of a row, under `keys`, and a column for each protocol.

    A cell is what `first` makes of stock's row, `others` of the rest.
    """
    protocols = list(dict.fromkeys(row["protocol"] for row in rows))
    cells: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        text = (first if row["protocol"] == STOCK else others)(row)
        cells.setdefault(tuple(name(row)), {})[row["protocol"]] = text
    header = list(keys)
    for protocol in protocols:
        paths = {row["fabric"] for row in rows if row["protocol"] == protocol} - {NOTHING}
        header.append(f"`{protocol}` ({', '.join(sorted(paths))})")
    return markdown(
        header, [[*line, *(of.get(p, "") for p in protocols)] for line, of in cells.items()]
    )


def _metric(rows: Rows, metric: str) -> Rows:
    return [row for row in rows if row["metric"] == metric]


def _size(row: Any) -> list[str]:
    return [str(Size(row["bytes"], row["tensors"]))]


def _median(row: Any) -> str:
    return duration(row["median_us"])


def _ratio(row: Any) -> str:
    return times(row["ratio"], row["ratio_interval"])


def _cpu(row: Any) -> str:
    return duration(row["cpu_us_per_step"])


def recv_steps(rows: Rows) -> str:
    """Stock's median time of a step, and of each other protocol stock's over its own."""
    return _grid(_metric(rows, recv.STEP), [""], _size, _median, _ratio)


def recv_cold(rows: Rows) -> str:
    """As `recv_steps`, of the first step after an idle pause."""
    return _grid(_metric(rows, recv.COLD), [""], _size, _median, _ratio)


def recv_cpu(rows: Rows) -> str:
    """CPU time of all processes together, a step."""
    return _grid(_metric(rows, recv.STEP), [""], _size, _cpu, _cpu)


#: One way to run each protocol that was measured beside the others; Open MPI was the fastest MPI.
_COMPARED = (STOCK, f"{MPI}/openmpi", AR)


def protocols(rows: Rows) -> str:
    """`recv_steps` of a column for each protocol."""
    return recv_steps([row for row in rows if row["protocol"] in _COMPARED])


def protocols_cpu(rows: Rows) -> str:
    """`recv_cpu` of a column for each protocol."""
    return recv_cpu([row for row in rows if row["protocol"] in _COMPARED])


def _mix(row: Any) -> list[str]:
    return [row["scheme"], str(row["workers"])]


def recommender_rate(rows: Rows) -> str:
    """Stock's steps a second, and each other protocol's over them."""
    return _grid(
        _metric(rows, recommender.STEPS_PER_SECOND),
        ["mix", "workers"],
        _mix,
        lambda row: f"{row['value']:.0f}/s",
        _ratio,
    )


def recommender_p99(rows: Rows) -> str:
    """The time that a step in a hundred exceeds."""

    def late(row: Any) -> str:
        return duration(row["value"])

    return _grid(_metric(rows, recommender.P99_US), ["mix", "workers"], _mix, late, late)


def recommender_cpu(rows: Rows) -> str:
    """CPU time of the parameter server, a step."""

    def spent(row: Any) -> str:
        return duration(row["value"] * 1e6)

    chosen = _metric(rows, recommender.PS_CPU_S_PER_STEP)
    return _grid(chosen, ["mix", "workers"], _mix, spent, spent)


def all_reduce(rows: Rows) -> str:
    """Stock's time of an all-reduce, and of each other protocol stock's over its own."""
    return _grid(
        rows, ["workers", ""], lambda row: [str(row["workers"]), *_size(row)], _median, _ratio
    )


def train(rows: Rows) -> str:
    """A line for each protocol."""
    lines = [
        [
            f"`{row['protocol']}`",
            row["fabric"],
            f"{statistics.median(row['samples']):.0f}",
            spread_of(row["samples"]),
            times(row["ratio"], row["ratio_interval"] if row["protocol"] != STOCK else None),
            f"{row['accuracy']:.1%}",
        ]
        for row in rows
    ]
    return markdown(["", "path", "steps/s", "rounds", "to stock", "accuracy"], lines)


def attacks(rows: Rows) -> str:
    protocols, lines = hostile.lines(rows)
    return markdown(["", *(f"`{protocol}`" for protocol in protocols)], lines)


def _each(row: Any, task: str, count: str, names: Sequence[str] = ()) -> str:
    """A count of one task's for a step: of these names, or of all."""
    found = row[task][count]
    total = sum(found.get(name, 0) for name in names) if names else sum(found.values())
    return f"{total / row['steps']:g}"


def _share(row: Any, of: str, among: str) -> str:
    """How many of the bytes that were looked at, in percent; of none nothing."""
    looked = row.get("looked_at", {among: 0})
    return f"{looked[of] / looked[among]:.0%}" if looked[among] else ""


def requests(rows: Rows) -> str:
    """What both ends of grpc+ar tell their RDMA devices for a step, by size."""
    lines = []
    for row in rows:
        if row["protocol"] != AR:
            continue
        reads = _each(row, "worker", "requests", ["read"])
        line = [*_size(row), reads, _share(row, "direct", "read")]
        for task in ("worker", "ps"):
            line.append(_each(row, task, "requests", ["send"]))
            line += [_each(row, task, "frames", [kind]) for kind in ("message", "credits")]
            line.append(_each(row, task, "http2"))
        lines.append(line)
    header = ["", "READs", "tensor to tensor"]
    for arrow in ("to the ps", "to the worker"):
        header += [f"SENDs {arrow}", "messages", "credits", "HTTP/2 frames"]
    return markdown(header, lines)


def requests_of_writes(rows: Rows) -> str:
    """The same of grpc+verbs."""
    lines = []
    for row in rows:
        if row["protocol"] != VERBS:
            continue
        writes = _each(row, "ps", "requests", ["write"])
        line = [*_size(row), writes, _share(row, "from_source", "written")]
        line += [_each(row, "ps", "frames", [kind]) for kind in ("message", "credits")]
        line.append(_each(row, "worker", "requests", ["send"]))
        line += [f"{row[task]['registrations'] / row['steps']:g}" for task in ("ps", "worker")]
        lines.append(line)
    header = ["", "WRITEs", "from the tensor", "notes", "credits", "SENDs to the ps"]
    return markdown([*header, "registered by the ps", "by the worker"], lines)


def _between(seconds: Sequence[float]) -> str:
    """The least and the most of times; one of them where they read the same."""

    def read(value: float) -> str:
        if value < 0.001:
            return "<0.001"
        return f"{value:.0f}" if value >= 10 else f"{value:.2g}"

    return "–".join(dict.fromkeys(map(read, (min(seconds), max(seconds))))) + " s"


def faults(rows: Rows) -> str:
    """What follows a fault, and after what time, over each driver of an RDMA device."""
    drivers = list(dict.fromkeys(row["driver"] for row in rows))
    times_of: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows:
        line = times_of.setdefault((row["fault"], row["seen"]), {})
        line.setdefault(row["driver"], []).extend(row["seconds"])
    lines = [
        [*named, *(_between(by[driver]) if driver in by else "" for driver in drivers)]
        for named, by in times_of.items()
    ]
    return markdown(["fault", "what follows", *(f"`{driver}`" for driver in drivers)], lines)


def provenance(made: record.Record, file: str) -> str:
    """What a file's rows were measured on and by, as one paragraph."""
    cores = made["cores"]
    limited = f" limited to {cores['quota']:g}" if cores["quota"] is not None else ""
    commit, _, dirty = made["commit"].partition("-")
    wheel = f", wheel {made['wheel']['sha256'][:12]}" if made["wheel"] else ""
    return (
        f"[{file}](measured/{file}): `{' '.join(made['command'])}`, {made['date'][:10]}, commit "
        f"{commit[:12]}{' with changes' if dirty else ''}{wheel}; "
        f"{made['cpu']}, {cores['usable']} cores{limited}, {made['memory_bytes'] / 2**30:.0f} GiB, "
        f"Linux {made['kernel']}, glibc {made['glibc']}; load at the start {made['load'][0]:g}.\n"
    )


#: Table → the file in docs/measured/ that has its rows, and what makes it of them.
TABLES: dict[str, tuple[str, Callable[[Rows], str]]] = {
    "recv": ("recv.json", recv_steps),
    "recv-cpu": ("recv.json", recv_cpu),
    "recv-cold": ("recv-cold.json", recv_cold),
    "recv-strategy": ("recv-strategy.json", recv_steps),
    "recv-mpi": ("recv-mpi.json", recv_steps),
    "recv-mpi-cpu": ("recv-mpi.json", recv_cpu),
    "train": ("train.json", train),
    "recommender": ("recommender.json", recommender_rate),
    "recommender-p99": ("recommender.json", recommender_p99),
    "recommender-cpu": ("recommender.json", recommender_cpu),
    "recommender-strategy": ("recommender-strategy.json", recommender_rate),
    "allreduce": ("allreduce.json", all_reduce),
    "hostile": ("hostile.json", attacks),
    "requests": ("requests.json", requests),
    "requests-verbs": ("requests.json", requests_of_writes),
}
#: The same of pages that have tables of words, too.
BESIDE: dict[Path, dict[str, tuple[str, Callable[[Rows], str]]]] = {
    REPO / "docs" / "protocols.md": {
        "protocols": ("recv-mpi.json", protocols),
        "protocols-cpu": ("recv-mpi.json", protocols_cpu),
    },
    REPO / "docs" / "rdma.md": {"faults": ("faults.json", faults)},
}
PAGES = (PAGE, *BESIDE)


def outside(text: str) -> str:
    """What of a page is not between marks."""
    return _BLOCK.sub("", text)


def render(text: str, folder: Path = FOLDER, page: Path = PAGE) -> str:
    """`text` of `page` with every table and record made anew from the rows in `folder`.

    Where a file of rows is not there, the page says so instead.
    Raises ArtfError when one has no maker or no place, or when a table stands outside the marks.
    """
    tables = TABLES if page == PAGE else BESIDE[page]
    placed: set[str] = set()

    def block(found: re.Match[str]) -> str:
        kind, name = found[1], found[2]
        placed.add(name)
        if kind == "record":
            raw = folder / name
            made = provenance(record.read(raw)[1], name) if raw.exists() else NOT_MEASURED
        elif name in tables:
            file, make = tables[name]
            raw = folder / file
            made = make(record.read(raw)[0]) if raw.exists() else ""
        else:
            raise ArtfError(
                f"{page.name} has a table {name!r} that nothing makes",
                f"choose of {', '.join(tables)}, or add it to bench/figures.py",
            )
        return f"<!-- {kind}: {name} -->\n{made}{_END}"

    new = _BLOCK.sub(block, text)
    marks = ("|", "<!--") if page == PAGE else ("<!--",)
    lost = [line for line in outside(text).splitlines() if line.startswith(marks)]
    if lost:
        raise ArtfError(
            f"{page.name} has a line outside the marks of a table: {lost[0]}",
            "let bench/figures.py make that table",
        )
    for kind, names in (("table", set(tables)), ("record", {file for file, _ in tables.values()})):
        for name in sorted(names - placed):
            raise ArtfError(
                f"{page.name} has no place for the {kind} {name}",
                f"add the lines <!-- {kind}: {name} --> and {_END}",
            )
    return new


def render_pages() -> Sequence[Path]:
    """Writes the tables of all pages anew from the rows in docs/measured/; returns the pages."""
    for page in PAGES:
        page.write_text(render(page.read_text(), FOLDER, page))
    return PAGES


def write(path: Path, rows: Rows, made: record.Record) -> None:
    """`record.write`, and where `path` lies in docs/measured/ the pages' tables with it.

    Both at once, so that no run, and none that is cut short, leaves rows that a page does not show.
    """
    record.write(path, rows, made)
    if path.resolve().parent == FOLDER:
        render_pages()
