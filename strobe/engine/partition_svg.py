"""A partition as a picture that needs nothing to be shown: owners over time, loads, bytes, sizes of chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

import numpy as np

from strobe.engine.curve import STYLE, Scale
from strobe.engine.partition import Partition
from strobe.engine.summary import choice_in_short
from strobe.numbers import file_size, number_of, short, times
from strobe.palette import MANY, PALETTE

OWNERS = MANY
"""Of ranks; where there are more they begin again."""

_WIDTH, _LEFT, _RIGHT, _GAP = 960, 64, 24, 60
_OVER_TIME, _BARS, _CHUNKS = 220, 150, 130  # heights
_FULL = _WIDTH - _LEFT - _RIGHT
_HALF = (_FULL - _LEFT - _RIGHT) // 2
_MOST_COLUMNS = 400
_LEGEND = (72, 145)  # width of an entry: of one rank, of several that share a colour
_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes"))
_LETTER = 6.6  # the usual width of one, of 12 px


def partition_svg(found: Partition) -> str:
    """A picture for a browser or a paper, in light or dark as the reader has it."""
    by = choice_in_short("placement", found.placement.to_json())
    title = f"{found.graph} by {by} on {number_of(found.num_ranks, 'rank')}"
    legend, top = _legend(found.num_ranks, 74)
    parts, top = [*legend], top + 48
    parts += _over_time(found, top)
    top += _OVER_TIME + _GAP + 24
    parts += [*_loads(found, _LEFT, top), *_sent(found, _WIDTH - _RIGHT - _HALF, top)]
    top += _BARS + _GAP
    if found.chunk_counts:
        top += 24
        parts += _chunks(found, top)
        top += _CHUNKS + _GAP
    drawn = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" width="{_WIDTH}" height="{top}" '
        f'role="img" aria-label="{escape(title)}">\n<style>{STYLE}</style>\n'
        f'<rect class="ground" width="{_WIDTH}" height="{top}"/>\n'
        f'<text class="title" x="{_LEFT}" y="30">{escape(_cut(title, _FULL / 9))}</text>\n'
        f'<text x="{_LEFT}" y="52">{escape(_subtitle(found))}</text>\n{drawn}\n</svg>\n'
    )


def _subtitle(found: Partition) -> str:
    uneven = "some ranks have nothing" if found.load is None else f"fullest rank to emptiest {times(found.load)}"
    sent = f"{file_size(found.sent_bytes)} an epoch ({found.model})"
    default = "" if found.is_default else f"; the default, time-blocks: {file_size(found.default_bytes)}"
    return f"{uneven}; {sent}{default}"


def _legend(num_ranks: int, top: int) -> tuple[list[str], int]:
    """A square for every colour, with its ranks; and where the next thing may begin."""
    parts, wide = [], _LEGEND[num_ranks > len(OWNERS)]
    in_a_row = _FULL // wide
    for k, colour in enumerate(OWNERS[:num_ranks]):
        x, y = _LEFT + k % in_a_row * wide, top + k // in_a_row * 20
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 17}" y="{y + 10}">{_ranks(k, num_ranks)}</text>')
    return parts, top + -(-min(num_ranks, len(OWNERS)) // in_a_row) * 20


def _ranks(first: int, num_ranks: int) -> str:
    """Who has a colour: rank 3; 3, 15; 3, 15, …, 99."""
    same = range(first, num_ranks, len(OWNERS))
    if num_ranks <= len(OWNERS):
        return f"rank {first}"
    told = [str(rank) for rank in same]
    return ", ".join(told if len(told) < 4 else [*told[:2], "…", told[-1]])


def _over_time(found: Partition, top: int) -> Iterator[str]:
    """Cells of every snapshot, rank 0's at the bottom; many snapshots are averaged."""
    cells = np.array(found.cells_at, np.float64).reshape(-1, found.num_ranks)
    stretches = np.array_split(cells, max(min(len(cells), _MOST_COLUMNS), 1))
    columns = np.array([stretch.mean(axis=0) for stretch in stretches if len(stretch)]).reshape(-1, found.num_ranks)
    upto = np.concatenate([np.zeros((len(columns), 1)), columns.cumsum(axis=1)], axis=1)
    scale = _from_zero(float(upto[:, -1].max(initial=0)))
    y = _height(scale, top, _OVER_TIME)
    yield f'<text class="head" x="{_LEFT}" y="{top - 28}">cells over time, by owner</text>'
    yield from _grid(scale, _LEFT, _FULL, y, short)
    edges = [round(_LEFT + k * _FULL / max(len(columns), 1), 1) for k in range(len(columns) + 1)]
    for rank in range(found.num_ranks):
        low, high = upto[:, rank], upto[:, rank + 1]
        if (high > low).any():
            there = "".join(f"V{y(v)}H{x}" for v, x in zip(high, edges[1:], strict=True))
            back = "".join(f"V{y(v)}H{x}" for v, x in zip(low[::-1], edges[-2::-1], strict=True))
            name = f"rank {rank}: {number_of(int(cells[:, rank].sum()), 'cell')}"
            yield f'<path fill="{_colour(rank)}" d="M{edges[0]} {y(low[0])}{there}{back}Z"><title>{name}</title></path>'
    yield from _parts_of_time(found, top)
    yield from _time_labels(found.times, top + _OVER_TIME + 18)


def _parts_of_time(found: Partition, top: int) -> Iterator[str]:
    """Where training, validation and test begin; a name that has no room is left out."""
    for name, part in found.parts.items():
        start, end = (_LEFT + t * _FULL / len(found.times) for t in part)
        if start > _LEFT and end > start:
            yield f'<path class="level" d="M{start:.1f} {top - 16}V{top + _OVER_TIME}"/>'
        if end - start > len(name) * _LETTER + 8:
            yield f'<text x="{start + 4:.1f}" y="{top - 8}">{name}</text>'


def _time_labels(names: Sequence[str], y: int) -> Iterator[str]:
    """The first snapshot, the middle one and the last, as far as they are different ones."""
    most = _FULL / 3 / _LETTER
    for k, side in {0: "start", len(names) // 2: "middle", len(names) - 1: "end"}.items():
        x = {"start": _LEFT, "middle": _LEFT + (k + 0.5) * _FULL / max(len(names), 1), "end": _WIDTH - _RIGHT}[side]
        if 0 <= k < len(names) and (side != "middle" or len(names) > 2):
            yield f'<text x="{x:.1f}" y="{y}" text-anchor="{side}">{escape(_cut(names[k], most))}</text>'


def _loads(found: Partition, left: int, top: int) -> Iterator[str]:
    loads = found.relative_loads
    scale = _from_zero(max(*loads, 1.0))
    y = _height(scale, top, _BARS)
    yield f'<text class="head" x="{left}" y="{top - 12}">load of each rank, for a mean of 1</text>'
    yield from _grid(scale, left, _HALF, y, "{:g}".format)
    for rank, (x, wide) in enumerate(_places(found.num_ranks, left)):
        yield _bar(x, y(loads[rank]), wide, y(0), _colour(rank), f"rank {rank}: {loads[rank]:.3f}")
    yield f'<path class="level" d="M{left} {y(1)}H{left + _HALF}"/>'
    yield from _rank_labels(found.num_ranks, left, top + _BARS + 18)


def _sent(found: Partition, left: int, top: int) -> Iterator[str]:
    """Along edges below, in time above it and paler."""
    most = max(share.sent_bytes for share in found.shares)
    size, unit = next((size, unit) for size, unit in _UNITS if most >= size or size == 1)
    scale = _from_zero(most / size)
    y = _height(scale, top, _BARS)
    head = f"{unit} sent in an epoch: along edges, in time (pale)"
    yield f'<text class="head" x="{left}" y="{top - 12}">{head}</text>'
    yield from _grid(scale, left, _HALF, y, "{:g}".format)
    for rank, (x, wide) in enumerate(_places(found.num_ranks, left)):
        share = found.shares[rank]
        for low, high, style, what in (
            (0, share.bytes_along_edges, "", "along edges"),
            (share.bytes_along_edges, share.sent_bytes, ' opacity="0.5"', "in time"),
        ):
            name = f"rank {rank}: {file_size(high - low)} {what}"
            yield _bar(x, y(high / size), wide, y(low / size), _colour(rank), name, style)
    yield from _rank_labels(found.num_ranks, left, top + _BARS + 18)


def _chunks(found: Partition, top: int) -> Iterator[str]:
    """How many chunks have how many cells, every bar for sizes up to twice as large."""
    counts = found.chunk_counts
    scale = _from_zero(float(max(counts)))
    y = _height(scale, top, _CHUNKS)
    head = f"{number_of(sum(counts), 'chunk')} of training, by cells in them"
    yield f'<text class="head" x="{_LEFT}" y="{top - 12}">{head}</text>'
    yield from _grid(scale, _LEFT, _FULL, y, short)
    step = _FULL / len(counts)
    for k, count in enumerate(counts):
        x = _LEFT + k * step
        sizes = "1 cell" if k == 0 else f"{2**k:,} to {2 ** (k + 1) - 1:,} cells"
        yield _bar(x + 1, y(count), step - 2, y(0), PALETTE[0], f"{number_of(count, 'chunk')} of {sizes}")
    every = max(1, round(60 / step))
    for k in range(0, len(counts) + 1, every):
        side = "start" if k == 0 else "end" if k == len(counts) else "middle"
        yield f'<text x="{_LEFT + k * step:.1f}" y="{top + _CHUNKS + 18}" text-anchor="{side}">{short(2**k)}</text>'


def _places(num_ranks: int, left: int) -> list[tuple[float, float]]:
    """Where the bar of every rank begins, and how wide it is."""
    step = _HALF / num_ranks
    room = min(4.0, step / 5)
    return [(left + rank * step + room / 2, step - room) for rank in range(num_ranks)]


def _rank_labels(num_ranks: int, left: int, y: int) -> Iterator[str]:
    every = -(-num_ranks // 16)
    for rank in range(0, num_ranks, every):
        x = left + (rank + 0.5) * _HALF / num_ranks
        yield f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{rank}</text>'


def _bar(x: float, top: float, wide: float, bottom: float, colour: str, name: str, style: str = "") -> str:
    size = f'width="{wide:.2f}" height="{bottom - top:.1f}"'
    return f'<rect x="{x:.2f}" y="{top}" {size} fill="{colour}"{style}><title>{name}</title></rect>'


def _grid(
    scale: Scale, left: int, wide: int, y: Callable[[float], float], told: Callable[[float], str]
) -> Iterator[str]:
    for tick in scale.ticks():
        yield f'<path class="grid" d="M{left} {y(tick)}H{left + wide}"/>'
        yield f'<text x="{left - 8}" y="{y(tick) + 4}" text-anchor="end">{told(tick)}</text>'


def _from_zero(highest: float) -> Scale:
    return Scale(0.0, highest * 1.05 if highest > 0 else 1.0, False)


def _height(scale: Scale, top: int, height: int) -> Callable[[float], float]:
    return lambda value: round(top + (1 - scale.place(value)) * height, 1)


def _colour(rank: int) -> str:
    return OWNERS[rank % len(OWNERS)]


def _cut(text: str, most: float) -> str:
    return text if len(text) <= most else f"{text[: int(most) - 1]}…"
