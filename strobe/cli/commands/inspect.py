"""``strobe inspect``: statistics of a graph, in the terminal, as JSON, or as an HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich import box
from rich.table import Table
from rich.text import Text

from strobe.cli.console import out, print_json, print_note, progress_bar
from strobe.cli.options.groups import option
from strobe.errors import OptionError
from strobe.format import file_size, format_count, format_short, percent, pluralize
from strobe.graph.datasets import DATASETS
from strobe.graph.disk.open import open_graph
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.stats.describe import GraphStats, describe
from strobe.graph.stats.distributions import Spread
from strobe.report.graph_page import graph_page
from strobe.report.page import check_target, write_page


def inspect(
    graph: Annotated[Path, typer.Argument(metavar="GRAPH", help="The directory of a saved graph.", show_default=False)],
    html: Annotated[Path | None, option("Write one self-contained page with plots.", metavar="FILE")] = None,
    as_json: Annotated[bool, option("Print one line of JSON instead of tables.", "--json")] = False,
    verify: Annotated[bool, option("Check every array first, even if it was checked before.", "--verify")] = False,
    snapshots: Annotated[str | None, option("Only snapshots A up to B, such as 10:20 or -12:.", metavar="A:B")] = None,
) -> None:
    """Show a graph's size, churn, degrees, sequence lengths, bytes and imbalance.

    Numbers are exact, from one pass over the snapshots with two of them in memory.
    """
    if html is not None:
        check_target(html)
    if str(graph) in DATASETS and not graph.exists():
        raise OptionError(f"there is no graph at {graph} yet: make it with strobe data get {graph}")
    opened = _open(graph, verify)
    with progress_bar("snapshots") as on_progress:
        stats = describe(opened if snapshots is None else _select_snapshots(opened, snapshots), on_progress)
    name = graph.resolve().name
    if as_json:
        print_json({"graph": str(graph), "verified": verify, **stats.to_dict()})
    else:
        out.print(_heading(stats, name), _over_time(stats), _facts(stats), sep="\n", highlight=False)
    if html is not None:
        _write_page(html, stats, name)


def _open(folder: Path, verify: bool) -> DynamicGraph:
    with progress_bar("checking the graph") as on_progress:
        graph = open_graph(folder, verify=verify, on_progress=on_progress)
    if verify:
        files = list(folder.rglob("*.npy"))
        size = file_size(sum(path.stat().st_size for path in files))
        print_note(f"verified: {len(files)} arrays, {size}, all match their checksums, and all indices are in range")
    return graph


def _select_snapshots(graph: DynamicGraph, text: str) -> DynamicGraph:
    """Parse a slice of snapshots: ``10:20``, ``:40`` or ``-12:``."""
    try:
        start, stop = (int(end) if end.strip() else None for end in text.split(":"))
    except ValueError:
        raise OptionError(f"--snapshots takes A:B, such as 10:20, :40 or -12:, not {text!r}") from None
    part = graph[start:stop]
    if len(graph) and not len(part):
        raise OptionError(f"--snapshots {text} selects none of the {len(graph):,} snapshots (0:{len(graph)})")
    return part


def _write_page(path: Path, stats: GraphStats, name: str) -> None:
    try:
        write_page(path, graph_page(stats, name))
    except OSError as error:
        raise OptionError(f"cannot write {path}: {error.strerror or error}") from error
    print_note(f"page: {path}")


_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """Draw values as bars from 0 to the largest, averaged to ``width`` columns. Only 0 has the lowest bar."""
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
    ends = [str(each.time) for each in (*stats.snapshots[:1], *stats.snapshots[1:][-1:])]
    span = f" ({' … '.join(ends)})" if ends else ""
    return Text.assemble(
        (name, "bold"),
        f"  {pluralize(stats.num_nodes, 'node')} · {pluralize(stats.num_snapshots, 'snapshot')}{span}\n",
        (f"{kind} · {weighted} · features: {stats.features or 'none'}", "dim"),
    )


def _over_time(stats: GraphStats) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("per snapshot", no_wrap=True)
    for column in ("total", "mean", "min", "max"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("over time", style="cyan", no_wrap=True)
    rows = {"cells": "nodes", "edges": "edges", "arcs": "arcs", "load: cells+arcs": "load"}
    rows |= {"isolated cells": "isolated", "self-loops": "self_loops", "parallel edges": "parallel_edges"}
    if stats.directed:
        del rows["arcs"]  # they equal edges
    for label, name in rows.items():
        _add_row(table, label, stats.series(name), always=name in ("nodes", "edges"))
    table.add_section()
    later = stats.snapshots[1:]  # changes since the previous snapshot
    for name in ("arrivals", "departures", "returns"):
        _add_row(table, name, [getattr(s, name) for s in later])
    shares = {"new edges": "new_share", "dropped edges": "dropped_share", "Jaccard": "jaccard"}
    for label, name in shares.items():
        values = [getattr(s, name) for s in later]
        if values:
            numbers = [f"{100 * number:.1f}%" for number in (float(np.mean(values)), min(values), max(values))]
            table.add_row(label, "", *numbers, sparkline(values))
    return table


def _add_row(table: Table, label: str, values: list[int], *, always: bool = False) -> None:
    """Add a row of counts, unless all are 0."""
    if not values or not (always or any(values)):
        return
    numbers = (sum(values), sum(values) / len(values), min(values), max(values))
    table.add_row(label, *(format_short(number) for number in numbers), sparkline(values))


def _facts(stats: GraphStats) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_row("in-degree" if stats.directed else "degree", _degree_line(stats))
    table.add_row("sequences", _sequence_line(stats))
    full, delta = file_size(stats.full_bytes), file_size(stats.delta_bytes)
    table.add_row("bytes", f"{full} in full · {delta} as deltas ({percent(stats.delta_share)})")
    table.add_row("uneven edges", _spread_line(stats.edge_spread))
    table.add_row("uneven load", _spread_line(stats.load_spread))
    return table


def _degree_line(stats: GraphStats) -> str:
    law = stats.degrees
    median, p99, largest = map(format_count, (law.median, law.p99, law.max))
    line = f"mean {law.mean:,.2f} · median {median} · p99 {p99} · max {largest} · Gini {law.gini:.2f}"
    if law.tail is None:
        return f"{line}\ntail: too few cells with a degree of 6 or more for a law"
    fit = "good" if law.tail.distance < 0.05 else "rough" if law.tail.distance < 0.1 else "poor"
    return f"{line}\ntail exponent {law.tail.exponent:.2f} from degree {law.tail.xmin} ({fit} fit)"


def _sequence_line(stats: GraphStats) -> str:
    lives = stats.sequences
    counts = (lives.num_always_present, lives.num_never_present, lives.num_nodes_with_gaps)
    always, never, gaps = map(format_count, counts)
    return (
        f"mean {lives.mean:,.1f} · median {format_count(lives.median)} · max {format_count(lives.max)} cells\n"
        f"{always} nodes always present · {never} never · {gaps} with gaps\n"
        f"nodes by length: short {sparkline(lives.counts[1:])} long"
    )


def _spread_line(spread: Spread) -> str:
    if spread.max_over_mean is None:
        return "nothing to compare"
    smallest = "–" if spread.max_over_min is None else f"{spread.max_over_min:,.2f}"
    return (
        f"max/mean {spread.max_over_mean:,.2f} · max/min {smallest} · "
        f"variation {spread.variation:.2f} · Gini {spread.gini:.2f}"
    )
