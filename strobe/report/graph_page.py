"""HTML page of a graph: key numbers, and plots with captions on what they mean for training."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np

from strobe.format import file_size, format_count, format_ratio, percent, pluralize
from strobe.graph.stats.describe import GraphStats
from strobe.report.charts.svg import PALETTE
from strobe.report.page import Plot, StatTile, new_figure, page


def graph_page(stats: GraphStats, title: str) -> str:
    """Return a self-contained HTML page: tiles with the key numbers, then seven plots."""
    plots = [make(stats) for make in _PLOTS] if stats.num_snapshots else []
    return page(title, _subtitle(stats), _tiles(stats), plots)


def _subtitle(stats: GraphStats) -> str:
    parts = [pluralize(stats.num_snapshots, "snapshot")]
    parts.append("directed" if stats.directed else "undirected")
    parts.append("weighted" if stats.weighted else "unweighted")
    parts.append(f"features: {stats.features or 'none'}")
    return " · ".join(parts)


def _span(stats: GraphStats) -> str:
    ends = [str(time) for time in stats.series("time")]
    return " … ".join([ends[0], ends[-1]] if len(ends) > 1 else ends)


def _tiles(stats: GraphStats) -> list[StatTile]:
    lives, law, load = stats.sequences, stats.degrees, stats.load_spread
    shared = stats.shared_pairs
    peak = load.max_over_mean
    tail = f"tail exponent {law.tail.exponent:.2f} from {law.tail.xmin}" if law.tail else "no power-law tail"
    return [
        StatTile(label="Snapshots", value=format_count(stats.num_snapshots), note=_span(stats)),
        StatTile(
            label="Nodes",
            value=format_count(stats.num_nodes),
            note=f"{format_count(lives.num_never_present)} never present",
        ),
        StatTile(label="Cells", value=format_count(stats.num_cells), note=f"{lives.mean:,.1f} per node present"),
        StatTile(label="Edges", value=format_count(stats.num_edges), note=f"{format_count(stats.num_arcs)} arcs"),
        StatTile(
            label="Shared by neighbors",
            value="–" if shared is None else percent(shared),
            note="of the edges of two snapshots",
        ),
        StatTile(
            label="Largest degree", value=format_count(law.max), note=f"median {format_count(law.median)}, {tail}"
        ),
        StatTile(label="Heaviest snapshot", value="–" if peak is None else f"{peak:.2f}×", note="the mean load"),
        StatTile(
            label="Bytes in full", value=file_size(stats.full_bytes), note=f"{file_size(stats.delta_bytes)} as deltas"
        ),
    ]


def _times(stats: GraphStats) -> list[Any]:
    """Return the times for an axis. Plotly parses dates, and interprets text as HTML, hence the escape."""
    return [escape(time) if isinstance(time, str) else time for time in stats.series("time")]


def _mode(x: list[Any]) -> str:
    """Show points if a line alone would be invisible."""
    return "lines" if len(x) > 2 else "lines+markers"


def _sizes(stats: GraphStats) -> Plot:
    x = _times(stats)
    figure = new_figure(y_title="per snapshot")
    for name, label in (("edges", "edges"), ("nodes", "nodes"), ("isolated", "isolated nodes")):
        values = stats.series(name)
        if name != "isolated" or any(values):
            figure.add_scatter(x=x, y=values, name=label, mode=_mode(x))
    return Plot(
        heading="Size of each snapshot",
        figure=figure,
        caption=size_caption(stats),
        alt="Lines of nodes and edges over time",
    )


def _edge_churn(stats: GraphStats) -> Plot:
    later = stats.snapshots[1:]
    x = _times(stats)[1:]
    figure = new_figure(y_title="share of edges")
    figure.update_yaxes(tickformat=".0%")
    figure.add_scatter(x=x, y=[s.new_share for s in later], name="new since the snapshot before", mode=_mode(x))
    figure.add_scatter(x=x, y=[s.dropped_share for s in later], name="dropped", mode=_mode(x))
    caption = churn_caption(stats)
    alt = "Lines of the share of new and of dropped edges over time"
    return Plot(heading="Edges that change", figure=figure, caption=caption, alt=alt)


def _node_churn(stats: GraphStats) -> Plot:
    later = stats.snapshots[1:]
    x = _times(stats)[1:]
    figure = new_figure(y_title="nodes")
    series = {
        "arrive for the first time": [s.arrivals for s in later],
        "return": [s.returns for s in later],
        "leave": [-s.departures for s in later],
    }
    for label, values in series.items():
        side = "out" if label == "leave" else "in"
        figure.add_scatter(x=x, y=values, name=label, mode=_mode(x), stackgroup=side, line={"width": 1})
    alt = "Areas of arriving, returning and leaving nodes over time, leaving ones below zero"
    return Plot(heading="Nodes that come and go", figure=figure, caption=presence_caption(stats), alt=alt)


def _degrees(stats: GraphStats) -> Plot:
    law = stats.degrees
    bins, cells = np.asarray(law.bins[1:]), np.asarray(law.counts[1:], np.float64)
    above = np.cumsum(cells[::-1])[::-1] / max(stats.num_cells, 1)
    kind = "in-degree" if stats.directed else "degree"
    figure = new_figure(x_title=f"{kind} k", y_title="share of cells with at least k")
    figure.add_scatter(x=bins.tolist(), y=above.tolist(), name="cells", mode="lines+markers", marker={"size": 5})
    if law.tail is not None:
        ends = np.array([law.tail.xmin, law.max], np.float64)
        share = law.tail.num_cells / stats.num_cells
        fitted = share * ((ends - 0.5) / (law.tail.xmin - 0.5)) ** (1 - law.tail.exponent)
        label = f"power law, exponent {law.tail.exponent:.2f} from {law.tail.xmin}"
        dashed = {"dash": "dash", "width": 2}
        figure.add_scatter(x=ends.tolist(), y=fitted.tolist(), name=label, mode="lines", line=dashed)
    figure.update_xaxes(type="log", dtick=1)
    figure.update_yaxes(type="log", dtick=1, rangemode="normal", tickformat=".4~%")
    alt = "Share of cells with at least k edges, both axes logarithmic"
    return Plot(heading="Degree law", figure=figure, caption=degree_caption(stats), alt=alt)


def _sequences(stats: GraphStats) -> Plot:
    counts = np.asarray(stats.sequences.counts[1:])
    width = -(-counts.size // 60)  # at most 60 bars
    starts = np.arange(0, counts.size, width)
    bars = np.add.reduceat(counts, starts)
    ends = np.minimum(starts + width, counts.size)
    labels = [f"{a + 1}" if b == a + 1 else f"{a + 1}–{b}" for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    figure = new_figure(x_title="snapshots a node is present in", y_title="nodes")
    centers = ((starts + 1 + ends) / 2).tolist()
    hover = "%{customdata}: %{y:,} nodes<extra></extra>"
    figure.add_bar(x=centers, y=bars.tolist(), customdata=labels, hovertemplate=hover, name="nodes")
    figure.update_layout(bargap=0.1, hovermode="closest")
    alt = "Histogram of the number of snapshots nodes are present in"
    return Plot(heading="Sequence lengths", figure=figure, caption=sequence_caption(stats), alt=alt)


def _loads(stats: GraphStats) -> Plot:
    loads = np.sort(np.asarray(stats.series("load"), np.float64))
    cumulative = np.concatenate(([0.0], np.cumsum(loads))) / max(float(loads.sum()), 1.0)
    share = np.linspace(0.0, 1.0, cumulative.size)
    figure = new_figure(x_title="share of snapshots, lightest first", y_title="share of cells + arcs")
    area = {"fill": "tozeroy", "mode": "lines"}
    figure.add_scatter(x=share.tolist(), y=cumulative.tolist(), name="these snapshots", **area)
    even = {"dash": "dot", "color": "#888"}
    figure.add_scatter(x=[0, 1], y=[0, 1], name="if all were equal", mode="lines", line=even, hoverinfo="skip")
    figure.update_xaxes(tickformat=".0%", range=[0, 1])
    figure.update_yaxes(tickformat=".0%")
    alt = "Lorenz curve of the load of snapshots, and the diagonal of equal loads"
    return Plot(heading="How uneven the load is", figure=figure, caption=load_caption(stats), alt=alt)


def _bytes(stats: GraphStats) -> Plot:
    x = _times(stats)
    figure = new_figure(y_title="cumulative MiB")
    for name, label, color in (("full_bytes", "in full", PALETTE[0]), ("delta_bytes", "as deltas", PALETTE[1])):
        mebibytes = (np.cumsum(stats.series(name)) / (1 << 20)).tolist()
        line = {"color": color, "width": 2}
        figure.add_scatter(x=x, y=mebibytes, name=label, mode=_mode(x), line=line)
    figure.update_yaxes(hoverformat=".3~f")
    alt = "Lines of the bytes of all snapshots so far, in full and as deltas"
    return Plot(heading="Bytes of the store", figure=figure, caption=bytes_caption(stats), alt=alt)


def size_caption(stats: GraphStats) -> str:
    """Does the graph grow?"""
    edges = np.asarray(stats.series("edges"), np.float64)
    tenth = max(1, edges.size // 10)
    first, last = float(edges[:tenth].mean()), float(edges[-tenth:].mean())
    mean, least, most = (format_count(each) for each in (edges.mean(), edges.min(), edges.max()))
    text = f"A snapshot holds {mean} edges on average, from {least} to {most}"
    if stats.num_snapshots < 2 or first == 0:
        return f"{text}."
    if last > 1.25 * first:
        return (
            f"{text}, and the graph grows: the last snapshots have {format_ratio(last / first)} the edges of the "
            "first, so a split by time tests the model on a larger graph than it was trained on."
        )
    if last < first / 1.25:
        return (
            f"{text}, and the graph shrinks: the last snapshots have {percent(last / first)} of the edges of the "
            "first, so a split by time leaves fewer examples for the test."
        )
    return f"{text}; early and late snapshots are about as large, so a split by time compares like with like."


def churn_caption(stats: GraphStats) -> str:
    """Is a delta store worth it?"""
    shared = stats.shared_pairs
    if shared is None:
        return "There are no two consecutive snapshots with edges to compare."
    text = f"Consecutive snapshots share {percent(shared)} of their edges"
    if stats.delta_share < 0.9:
        return f"{text}: a delta store would keep {percent(stats.delta_share)} of the bytes."
    return f"{text}: a delta store would save nothing worth having."


def presence_caption(stats: GraphStats) -> str:
    """Does the set of nodes change?"""
    later = stats.snapshots[1:]
    cells = sum(s.nodes for s in later)
    came = sum(s.arrivals for s in later)
    back, left = sum(s.returns for s in later), sum(s.departures for s in later)
    if not cells or not came + back + left:
        return "The same nodes are present in every snapshot: no state has to be made or parked."
    text = f"{percent(came / cells)} of a snapshot's nodes are new and {percent(back / cells)} come back after a gap"
    if came + back > 0.2 * cells:
        return f"{text}: many cells start without a recent state, so features must carry a newcomer."
    return f"{text}: most cells continue a sequence, so a time stage has a past to read."


def degree_caption(stats: GraphStats) -> str:
    """Are there hubs?"""
    law = stats.degrees
    if law.max == 0:
        return "No cell has an edge: a structure stage has nothing to read."
    most, median = format_count(law.max), format_count(law.median)
    text = f"The busiest cell reads {most} edges, the median cell {median} (Gini {law.gini:.2f})"
    if law.max >= 50 * max(law.median, 1):
        return f"{text}: a few hubs carry much of the work, so equal numbers of nodes are far from equal work."
    return f"{text}: no cell dominates, so equal numbers of nodes are close to equal work."


def sequence_caption(stats: GraphStats) -> str:
    """What would padding cost?"""
    lives = stats.sequences
    if not stats.num_cells:
        return "No node is ever present: there are no sequences."
    ever = stats.num_nodes - lives.num_never_present
    padded = ever * stats.num_snapshots / stats.num_cells
    if padded < 1.05:
        count = format_count(stats.num_snapshots)
        return f"Nearly every node is present in all {count} snapshots: sequences need no padding."
    gaps = f", and {percent(lives.num_nodes_with_gaps / ever)} of them leave and return" if lives.num_gaps else ""
    return (
        f"A node is present in {lives.mean:,.1f} of {format_count(stats.num_snapshots)} snapshots on average{gaps}: "
        f"padding all sequences to full length would compute {format_ratio(padded)} the cells."
    )


def load_caption(stats: GraphStats) -> str:
    """Can time be cut into equal numbers of snapshots?"""
    peak = stats.load_spread.max_over_mean
    if peak is None:
        return "There is no load to divide."
    text = f"The heaviest snapshot is {format_ratio(peak)} the mean load (cells + arcs)"
    if stats.num_snapshots < 8:
        return f"{text}; with {stats.num_snapshots} snapshots, time alone cannot be divided among many ranks."
    blocks = [float(part.sum()) for part in np.array_split(np.asarray(stats.series("load"), np.float64), 4)]
    uneven = max(blocks) * 4 / sum(blocks)
    if uneven < 1.1:
        return f"{text}; four parts of equally many snapshots have nearly equal work."
    ratio = format_ratio(uneven)
    return f"{text}; of four parts with equally many snapshots the heaviest has {ratio} its share of the work."


def bytes_caption(stats: GraphStats) -> str:
    """What would a delta store save?"""
    full, delta = file_size(stats.full_bytes), file_size(stats.delta_bytes)
    text = f"All snapshots take {full} in full and would take {delta} as deltas"
    if stats.delta_share < 0.9:
        return f"{text}: {percent(stats.delta_share)} of the bytes."
    if stats.delta_share <= 1:
        return f"{text}: hardly less."
    return f"{text}: so much changes that deltas are the larger."


_PLOTS: tuple[Callable[[GraphStats], Plot], ...] = (
    _sizes,
    _edge_churn,
    _node_churn,
    _degrees,
    _sequences,
    _loads,
    _bytes,
)
