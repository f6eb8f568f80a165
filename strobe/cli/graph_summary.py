"""A graph's statistics as a few small tables that fit 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from strobe.graph.stats import GraphStats, Spread
from strobe.numbers import count, file_size, number_of, percent, short

SPARK_WIDTH = 24
_BARS = "▁▂▃▄▅▆▇█"


def summary(stats: GraphStats, name: str) -> list[RenderableType]:
    """A heading, numbers per snapshot with sparklines, and facts about the whole."""
    return [_heading(stats, name), _over_time(stats), _facts(stats)]


def sparkline(values: Sequence[float], width: int = SPARK_WIDTH) -> str:
    """Values as bars from 0 to the largest; more values than columns are averaged. Only 0 has the lowest bar."""
    if not len(values):
        return ""
    parts = np.array_split(np.asarray(values, np.float64), min(width, len(values)))
    means = np.array([part.mean() for part in parts])
    top = float(means.max())
    levels = np.rint(means / top * (len(_BARS) - 1)) if top > 0 else np.zeros(means.size)
    return "".join(_BARS[max(int(level), int(mean > 0))] for level, mean in zip(levels, means, strict=True))


def _heading(stats: GraphStats, name: str) -> Text:
    kind = "directed" if stats.directed else "undirected"
    weighted = "weighted" if stats.weighted else "unweighted"
    span = _span(stats)
    return Text.assemble(
        (name, "bold"),
        f"  {number_of(stats.num_nodes, 'node')} · {number_of(stats.num_snapshots, 'snapshot')}{span}\n",
        (f"{kind} · {weighted} · features: {stats.features or 'none'}", "dim"),
    )


def _span(stats: GraphStats) -> str:
    if not stats.snapshots:
        return ""
    first, last = stats.snapshots[0].time, stats.snapshots[-1].time
    return f" ({first})" if stats.num_snapshots == 1 else f" ({first} … {last})"


def _over_time(stats: GraphStats) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("per snapshot", no_wrap=True)
    for column in ("total", "mean", "min", "max"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("over time", style="cyan", no_wrap=True)
    _add_counts(table, stats)
    table.add_section()
    _add_churn(table, stats)
    return table


def _add_counts(table: Table, stats: GraphStats) -> None:
    rows = {"cells": "nodes", "edges": "edges", "arcs": "arcs", "load: cells+arcs": "load"}
    rows |= {"isolated cells": "isolated", "self-loops": "self_loops", "parallel edges": "parallel_edges"}
    if stats.directed:
        del rows["arcs"]  # the same as edges
    for label, name in rows.items():
        _add_row(table, label, stats.series(name), always=name in ("nodes", "edges"))


def _add_churn(table: Table, stats: GraphStats) -> None:
    """Change since the snapshot before: the first one has none."""
    later = stats.snapshots[1:]
    for label, name in (("arrivals", "arrivals"), ("departures", "departures"), ("returns", "returns")):
        _add_row(table, label, [getattr(s, name) for s in later])
    shares = {"new edges": "new_share", "dropped edges": "dropped_share", "Jaccard": "jaccard"}
    for label, name in shares.items():
        values = [getattr(s, name) for s in later]
        if values:
            numbers = [f"{100 * number:.1f}%" for number in (float(np.mean(values)), min(values), max(values))]
            table.add_row(label, "", *numbers, sparkline(values))


def _add_row(table: Table, label: str, values: list[int], *, always: bool = False) -> None:
    """A row of counts; what never happens is not shown."""
    if not values or not (always or any(values)):
        return
    numbers = (sum(values), sum(values) / len(values), min(values), max(values))
    table.add_row(label, *(short(number) for number in numbers), sparkline(values))


def _facts(stats: GraphStats) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_row("in-degree" if stats.directed else "degree", _degree_line(stats))
    table.add_row("sequences", _sequence_line(stats))
    table.add_row("bytes", _bytes_line(stats))
    table.add_row("uneven edges", _spread_line(stats.edge_spread))
    table.add_row("uneven load", _spread_line(stats.load_spread))
    return table


def _degree_line(stats: GraphStats) -> str:
    law = stats.degrees
    line = f"mean {law.mean:,.2f} · median {count(law.median)} · p99 {count(law.p99)} · max {count(law.max)}"
    line += f" · Gini {law.gini:.2f}"
    if law.tail is None:
        return f"{line}\ntail: too few cells with a degree of 6 or more for a law"
    fit = "good" if law.tail.distance < 0.05 else "rough" if law.tail.distance < 0.1 else "poor"
    return f"{line}\ntail exponent {law.tail.exponent:.2f} from degree {law.tail.xmin} ({fit} fit)"


def _sequence_line(stats: GraphStats) -> str:
    lives = stats.sequences
    return (
        f"mean {lives.mean:,.1f} · median {count(lives.median)} · max {count(lives.max)} cells\n"
        f"{count(lives.num_always_present)} nodes always present · {count(lives.num_never_present)} never · "
        f"{count(lives.num_nodes_with_gaps)} with gaps\n"
        f"nodes by length: short {sparkline(lives.counts[1:])} long"
    )


def _bytes_line(stats: GraphStats) -> str:
    full, delta = file_size(stats.full_bytes), file_size(stats.delta_bytes)
    return f"{full} in full · {delta} as deltas ({percent(stats.delta_share)})"


def _spread_line(spread: Spread) -> str:
    if spread.max_over_mean is None:
        return "nothing to compare"
    smallest = "–" if spread.max_over_min is None else f"{spread.max_over_min:,.2f}"
    return (
        f"max/mean {spread.max_over_mean:,.2f} · max/min {smallest} · "
        f"variation {spread.variation:.2f} · Gini {spread.gini:.2f}"
    )
