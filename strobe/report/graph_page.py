"""A graph on one page: the numbers of ``describe``, drawn, with what they mean for training."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np

from strobe.graph.stats import GraphStats
from strobe.numbers import count, file_size, number_of, percent
from strobe.palette import PALETTE
from strobe.report import graph_captions as say
from strobe.report.page import Plot, Tile, new_figure, page


def graph_page(stats: GraphStats, title: str) -> str:
    """One self-contained HTML page: tiles with the key numbers, then seven plots. Opens offline."""
    plots = [make(stats) for make in _PLOTS] if stats.num_snapshots else []
    return page(title, _subtitle(stats), _tiles(stats), plots)


def _subtitle(stats: GraphStats) -> str:
    parts = [number_of(stats.num_snapshots, "snapshot")]
    parts.append("directed" if stats.directed else "undirected")
    parts.append("weighted" if stats.weighted else "unweighted")
    parts.append(f"features: {stats.features or 'none'}")
    return " · ".join(parts)


def _span(stats: GraphStats) -> str:
    ends = [str(time) for time in stats.series("time")]
    return " … ".join([ends[0], ends[-1]] if len(ends) > 1 else ends)


def _tiles(stats: GraphStats) -> list[Tile]:
    lives, law, load = stats.sequences, stats.degrees, stats.load_spread
    shared = stats.shared_pairs
    peak = load.max_over_mean
    tail = f"tail exponent {law.tail.exponent:.2f} from {law.tail.xmin}" if law.tail else "no power-law tail"
    return [
        Tile(label="Snapshots", value=count(stats.num_snapshots), note=_span(stats)),
        Tile(label="Nodes", value=count(stats.num_nodes), note=f"{count(lives.num_never_present)} never present"),
        Tile(label="Cells", value=count(stats.num_cells), note=f"{lives.mean:,.1f} per node present"),
        Tile(label="Edges", value=count(stats.num_edges), note=f"{count(stats.num_arcs)} arcs"),
        Tile(
            label="Shared by neighbours",
            value="–" if shared is None else percent(shared),
            note="of the edges of two snapshots",
        ),
        Tile(label="Largest degree", value=count(law.max), note=f"median {count(law.median)}, {tail}"),
        Tile(label="Heaviest snapshot", value="–" if peak is None else f"{peak:.2f}×", note="the mean load"),
        Tile(
            label="Bytes in full", value=file_size(stats.full_bytes), note=f"{file_size(stats.delta_bytes)} as deltas"
        ),
    ]


def _times(stats: GraphStats) -> list[Any]:
    """Times for an axis. Plotly reads dates by itself, and text as its own kind of HTML, hence the escape."""
    return [escape(time) if isinstance(time, str) else time for time in stats.series("time")]


def _mode(x: list[Any]) -> str:
    """Points where a line alone could not be seen."""
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
        caption=say.size_caption(stats),
        alt="Lines of nodes and edges over time",
    )


def _edge_churn(stats: GraphStats) -> Plot:
    later = stats.snapshots[1:]
    x = _times(stats)[1:]
    figure = new_figure(y_title="share of edges")
    figure.update_yaxes(tickformat=".0%")
    figure.add_scatter(x=x, y=[s.new_share for s in later], name="new since the snapshot before", mode=_mode(x))
    figure.add_scatter(x=x, y=[s.dropped_share for s in later], name="dropped", mode=_mode(x))
    caption = say.churn_caption(stats)
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
    return Plot(heading="Nodes that come and go", figure=figure, caption=say.presence_caption(stats), alt=alt)


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
    return Plot(heading="Degree law", figure=figure, caption=say.degree_caption(stats), alt=alt)


def _sequences(stats: GraphStats) -> Plot:
    counts = np.asarray(stats.sequences.counts[1:])
    width = -(-counts.size // 60)  # at most 60 bars
    starts = np.arange(0, counts.size, width)
    bars = np.add.reduceat(counts, starts)
    ends = np.minimum(starts + width, counts.size)
    labels = [f"{a + 1}" if b == a + 1 else f"{a + 1}–{b}" for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    figure = new_figure(x_title="snapshots a node is present in", y_title="nodes")
    centres = ((starts + 1 + ends) / 2).tolist()
    hover = "%{customdata}: %{y:,} nodes<extra></extra>"
    figure.add_bar(x=centres, y=bars.tolist(), customdata=labels, hovertemplate=hover, name="nodes")
    figure.update_layout(bargap=0.1, hovermode="closest")
    alt = "Histogram of the number of snapshots nodes are present in"
    return Plot(heading="Sequence lengths", figure=figure, caption=say.sequence_caption(stats), alt=alt)


def _loads(stats: GraphStats) -> Plot:
    loads = np.sort(np.asarray(stats.series("load"), np.float64))
    held = np.concatenate(([0.0], np.cumsum(loads))) / max(float(loads.sum()), 1.0)
    share = np.linspace(0.0, 1.0, held.size)
    figure = new_figure(x_title="share of snapshots, lightest first", y_title="share of cells + arcs")
    area = {"fill": "tozeroy", "mode": "lines"}
    figure.add_scatter(x=share.tolist(), y=held.tolist(), name="these snapshots", **area)
    even = {"dash": "dot", "color": "#888"}
    figure.add_scatter(x=[0, 1], y=[0, 1], name="if all were equal", mode="lines", line=even, hoverinfo="skip")
    figure.update_xaxes(tickformat=".0%", range=[0, 1])
    figure.update_yaxes(tickformat=".0%")
    alt = "Lorenz curve of the load of snapshots, beside the diagonal of equal loads"
    return Plot(heading="How uneven the load is", figure=figure, caption=say.load_caption(stats), alt=alt)


def _bytes(stats: GraphStats) -> Plot:
    x = _times(stats)
    figure = new_figure(y_title="MiB up to here")
    for name, label, colour in (("full_bytes", "in full", PALETTE[0]), ("delta_bytes", "as deltas", PALETTE[1])):
        held = (np.cumsum(stats.series(name)) / (1 << 20)).tolist()
        line = {"color": colour, "width": 2}
        figure.add_scatter(x=x, y=held, name=label, mode=_mode(x), line=line)
    figure.update_yaxes(hoverformat=".3~f")
    alt = "Lines of the bytes of all snapshots so far, in full and as deltas"
    return Plot(heading="Bytes to keep", figure=figure, caption=say.bytes_caption(stats), alt=alt)


_PLOTS: tuple[Callable[[GraphStats], Plot], ...] = (
    _sizes,
    _edge_churn,
    _node_churn,
    _degrees,
    _sequences,
    _loads,
    _bytes,
)
