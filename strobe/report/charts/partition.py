"""Chart of a partition: cell owners over time, loads, bytes sent, chunk sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from strobe.format import file_size, format_ratio, format_short, pluralize
from strobe.planner.partition import PartitionEstimate
from strobe.report.charts.svg import (
    CATEGORICAL_COLORS,
    LETTER,
    PALETTE,
    Panel,
    Scale,
    category_color,
    document,
    legend,
    path,
    text,
    truncate,
)
from strobe.report.summary import format_choice

_WIDTH, _LEFT, _RIGHT, _GAP = 960, 64, 24, 60
_OVER_TIME, _BARS, _CHUNKS = 220, 150, 130  # heights
_FULL = _WIDTH - _LEFT - _RIGHT
_HALF = (_FULL - _LEFT - _RIGHT) // 2
_MAX_COLUMNS = 400
_LEGEND_WIDTH = (72, 145)  # of an entry for one rank, for several ranks that share a color
_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes"))


def partition_svg(estimate: PartitionEstimate) -> str:
    """Draw a partition estimate."""
    by = format_choice("placement", estimate.placement.to_json())
    title = f"{estimate.graph} by {by} on {pluralize(estimate.num_ranks, 'rank')}"
    width = _LEGEND_WIDTH[estimate.num_ranks > len(CATEGORICAL_COLORS)]
    colors = dict(zip(_rank_groups(estimate.num_ranks), CATEGORICAL_COLORS, strict=False))
    parts = [*legend(_LEFT, 74, colors, width=width, columns=_FULL // width)]
    top = 74 + -(-len(colors) // (_FULL // width)) * 20 + 48
    parts += _over_time(estimate, top)
    top += _OVER_TIME + _GAP + 24
    parts += [*_loads(estimate, _LEFT, top), *_sent_bytes(estimate, _WIDTH - _RIGHT - _HALF, top)]
    top += _BARS + _GAP
    if estimate.chunk_counts:
        top += 24
        parts += _chunks(estimate, top)
        top += _CHUNKS + _GAP
    return document(title, parts, width=_WIDTH, height=top, left=_LEFT, subtitle=_subtitle(estimate))


def _subtitle(estimate: PartitionEstimate) -> str:
    balance = "some ranks have nothing"
    if estimate.imbalance is not None:
        balance = f"fullest rank to emptiest {format_ratio(estimate.imbalance)}"
    sent = f"{file_size(estimate.sent_bytes)} an epoch ({estimate.model})"
    default = "" if estimate.is_default else f"; the default, time-blocks: {file_size(estimate.default_bytes)}"
    return f"{balance}; {sent}{default}"


def _rank_groups(num_ranks: int) -> list[str]:
    """Name the ranks of each color: rank 3; 3, 15; 3, 15, …, 99."""
    num_colors = len(CATEGORICAL_COLORS)
    if num_ranks <= num_colors:
        return [f"rank {rank}" for rank in range(num_ranks)]
    groups = [[str(rank) for rank in range(first, num_ranks, num_colors)] for first in range(num_colors)]
    return [", ".join(ranks if len(ranks) < 4 else [*ranks[:2], "…", ranks[-1]]) for ranks in groups]


def _over_time(estimate: PartitionEstimate, top: int) -> Iterator[str]:
    """Stack the cells of the ranks in every snapshot; average adjacent snapshots if there are many."""
    cells = np.array(estimate.cells_at, np.float64).reshape(-1, estimate.num_ranks)
    blocks = np.array_split(cells, max(min(len(cells), _MAX_COLUMNS), 1))
    columns = np.array([block.mean(axis=0) for block in blocks if len(block)]).reshape(-1, estimate.num_ranks)
    upto = np.concatenate([np.zeros((len(columns), 1)), columns.cumsum(axis=1)], axis=1)
    panel = Panel(_LEFT, top, _FULL, _OVER_TIME, Scale.from_zero(float(upto[:, -1].max(initial=0))))
    yield panel.heading("cells over time, by owner", gap=28)
    yield from panel.grid(format_tick=format_short)
    edges = [round(_LEFT + k * _FULL / max(len(columns), 1), 1) for k in range(len(columns) + 1)]
    for rank in range(estimate.num_ranks):
        low, high = upto[:, rank], upto[:, rank + 1]
        if (high > low).any():
            above = "".join(f"V{panel.y(v)}H{x}" for v, x in zip(high, edges[1:], strict=True))
            below = "".join(f"V{panel.y(v)}H{x}" for v, x in zip(low[::-1], edges[-2::-1], strict=True))
            title = f"rank {rank}: {pluralize(int(cells[:, rank].sum()), 'cell')}"
            d = f"M{edges[0]} {panel.y(low[0])}{above}{below}Z"
            yield path(d, fill=category_color(rank), title=title)
    yield from _split_labels(estimate, top)
    yield from _time_labels(estimate.times, top + _OVER_TIME + 18)


def _split_labels(estimate: PartitionEstimate, top: int) -> Iterator[str]:
    """Mark where training, validation and test begin; omit a name without space."""
    for name, part in estimate.parts.items():
        start, end = (_LEFT + t * _FULL / len(estimate.times) for t in part)
        if start > _LEFT and end > start:
            yield path(f"M{start:.1f} {top - 16}V{top + _OVER_TIME}", css="level")
        if end - start > len(name) * LETTER + 8:
            yield text(start + 4, top - 8, name)


def _time_labels(names: Sequence[str], y: int) -> Iterator[str]:
    """Label the first, the middle and the last snapshot."""
    for k, side in {0: "start", len(names) // 2: "middle", len(names) - 1: "end"}.items():
        x = {"start": _LEFT, "middle": _LEFT + (k + 0.5) * _FULL / max(len(names), 1), "end": _LEFT + _FULL}[side]
        if 0 <= k < len(names) and (side != "middle" or len(names) > 2):
            yield text(x, y, truncate(names[k], _FULL / 3 / LETTER), anchor=side)


def _loads(estimate: PartitionEstimate, left: int, top: int) -> Iterator[str]:
    loads = estimate.relative_loads
    panel = Panel(left, top, _HALF, _BARS, Scale.from_zero(max(*loads, 1.0)))
    yield panel.heading("load of each rank, for a mean of 1")
    yield from panel.grid()
    for rank, (x, width) in enumerate(_bar_positions(estimate.num_ranks, left)):
        title = f"rank {rank}: {loads[rank]:.3f}"
        yield panel.bar(x, width, 0, loads[rank], fill=category_color(rank), title=title)
    yield panel.level(1)
    yield from _rank_labels(estimate.num_ranks, panel)


def _sent_bytes(estimate: PartitionEstimate, left: int, top: int) -> Iterator[str]:
    """Stack the bytes of the time stage, paler, on those of the structure stage."""
    most = max(cost.sent_bytes for cost in estimate.rank_costs)
    size, unit = next((size, unit) for size, unit in _UNITS if most >= size or size == 1)
    panel = Panel(left, top, _HALF, _BARS, Scale.from_zero(most / size))
    yield panel.heading(f"{unit} sent in an epoch: along edges, in time (pale)")
    yield from panel.grid()
    for rank, (x, width) in enumerate(_bar_positions(estimate.num_ranks, left)):
        cost, color = estimate.rank_costs[rank], category_color(rank)
        structure, total = cost.structure_bytes, cost.sent_bytes
        title = f"rank {rank}: {file_size(structure)} along edges"
        yield panel.bar(x, width, 0, structure / size, fill=color, title=title)
        title = f"rank {rank}: {file_size(total - structure)} in time"
        yield panel.bar(x, width, structure / size, total / size, fill=color, title=title, opacity=0.5)
    yield from _rank_labels(estimate.num_ranks, panel)


def _chunks(estimate: PartitionEstimate, top: int) -> Iterator[str]:
    """Histogram of chunk sizes, in bins of powers of 2."""
    counts = estimate.chunk_counts
    panel = Panel(_LEFT, top, _FULL, _CHUNKS, Scale.from_zero(float(max(counts))))
    yield panel.heading(f"{pluralize(sum(counts), 'chunk')} of training, by cells in them")
    yield from panel.grid(format_tick=format_short)
    step = _FULL / len(counts)
    for k, count in enumerate(counts):
        sizes = "1 cell" if k == 0 else f"{2**k:,} to {2 ** (k + 1) - 1:,} cells"
        title = f"{pluralize(count, 'chunk')} of {sizes}"
        yield panel.bar(_LEFT + k * step + 1, step - 2, 0, count, fill=PALETTE[0], title=title)
    for k in range(0, len(counts) + 1, max(1, round(60 / step))):
        side = "start" if k == 0 else "end" if k == len(counts) else "middle"
        yield text(_LEFT + k * step, panel.bottom + 18, format_short(2**k), anchor=side)


def _bar_positions(num_ranks: int, left: int) -> list[tuple[float, float]]:
    """Return left edge and width of the bar of every rank."""
    step = _HALF / num_ranks
    room = min(4.0, step / 5)
    return [(left + rank * step + room / 2, step - room) for rank in range(num_ranks)]


def _rank_labels(num_ranks: int, panel: Panel) -> Iterator[str]:
    for rank in range(0, num_ranks, -(-num_ranks // 16)):
        yield text(panel.left + (rank + 0.5) * _HALF / num_ranks, panel.bottom + 18, str(rank), anchor="middle")
