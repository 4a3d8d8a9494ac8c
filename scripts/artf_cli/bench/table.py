"""Rows of figures as tables on standard output."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from artf_cli.bench import recv, train
from artf_cli.bench.intervals import LEAST_ROUNDS, spread
from artf_cli.bench.sizes import Size
from artf_cli.console import out

_TITLES = {
    recv.STEP: "One transfer a step, parameter server to worker",
    recv.COLD: "The same, cold: the first step after an idle pause",
}
# What is never cut off in a narrow terminal; the rest of a cell goes to the next line.
_INTERVAL = len("(2.31-2.64)")
_SHARE = len("+100%")


def duration(us: float) -> str:
    """A time in µs as people read it: `640 µs`, `9.7 ms`, `1.2 s`."""
    if us < 1000:
        return f"{us:.0f} µs"
    return f"{us / 1000:.1f} ms" if us < 1e6 else f"{us / 1e6:.2f} s"


def spread_of(samples: Sequence[float]) -> str:
    """How far the rounds lie apart: `-3% +5%`; `-` of a single one."""
    low, high = spread(samples)
    return f"{low:+.0%} {high:+.0%}" if len(samples) > 1 else "-"


def times(ratio: float | None, interval: Sequence[float] | None) -> str:
    """A ratio with its interval: `2.50x (2.31-2.64)`; `-` where there is none.

    What is compared with itself has none to speak of: `1.00x`.
    """
    if ratio is None:
        return "-"
    sure = f" ({_three_digits(*interval)})" if interval and set(interval) != {1.0} else ""
    return f"{_three_digits(ratio)}x{sure}"


def _three_digits(*ratios: float) -> str:
    """Ratios, an interval's ends apart by a dash: `9.70-10.3`."""
    return "-".join(f"{each:.2f}" if each < 10 else f"{each:.1f}" for each in ratios)


def without_lines(title: str) -> Table:
    """An empty table of many columns: lines between them would take the room that 80 have."""
    return Table(title=title, box=box.SIMPLE_HEAD, show_edge=False, padding=0)


def render(rows: Sequence[recv.Row]) -> None:
    """Prints the rows of `recv` as one table for each metric, with a line that explains them."""
    for metric, title in _TITLES.items():
        chosen = [row for row in rows if row["metric"] == metric]
        if chosen:
            out.print(_table(chosen, title))
    explained = (
        "rounds: least and greatest against the median. against grpc: its time over this one's,"
        f" the rounds' median (95% interval, from {LEAST_ROUNDS} rounds on). CPU: of both"
        " processes, for a step."
    )
    out.print(explained, style="dim")


def _table(rows: Sequence[recv.Row], title: str) -> Table:
    old = any(row["against"] is not None for row in rows)
    cpu = any(row["cpu_us_per_step"] is not None for row in rows)
    table = without_lines(title)
    for column in ("size", "protocol", "path"):
        table.add_column(column, no_wrap=True)
    table.add_column("median", justify="right", no_wrap=True)
    table.add_column("rounds", justify="right", min_width=_SHARE)
    table.add_column("against grpc", justify="right", min_width=_INTERVAL)
    if old:
        table.add_column("against the old wheel", justify="right", min_width=_INTERVAL)
    if cpu:
        table.add_column("CPU", justify="right", no_wrap=True)
    last = ""
    for row in rows:
        size = str(Size(row["bytes"], row["tensors"]))
        cells = [
            size if size != last else "",
            row["protocol"],
            row["fabric"],
            duration(row["median_us"]),
            spread_of(row["samples_us"]),
            times(row["ratio"], row["ratio_interval"]),
        ]
        if old:
            cells.append(times(row["against"], row["against_interval"]))
        if cpu:
            us = row["cpu_us_per_step"]
            cells.append(duration(us) if us is not None else "-")
        table.add_row(*cells)
        last = size
    return table


def render_train(rows: Sequence[train.Row]) -> None:
    """Prints the rows of `train` as a table."""
    table = Table(title=f"LeNet on handwritten digits: 1 parameter server, {train.WORKERS} workers")
    for column in ("protocol", "path"):
        table.add_column(column, no_wrap=True)
    for column in ("steps/s", "rounds", "to grpc", "accuracy"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row["protocol"],
            row["fabric"],
            f"{row['median']:.1f}",
            spread_of(row["samples"]),
            times(row["ratio"], row["ratio_interval"]),
            f"{row['accuracy']:.1%}",
        )
    out.print(table)
