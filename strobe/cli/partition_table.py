"""A partition as a table that fits 80 columns, and a few lines on the whole of it."""

from __future__ import annotations

from rich.table import Table

from strobe.engine.partition import Partition
from strobe.engine.partition_shares import RankShare
from strobe.engine.summary import choice_in_short, duration, folded
from strobe.numbers import file_size, number_of, percent, short, times

_BAR = 6
_MOST_RANKS = 32


def partition_table(found: Partition) -> Table:
    """A row per rank, of training; the load as a bar and for a mean of 1."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("load", no_wrap=True, style="cyan")
    chunks = ("chunks", "median", "largest") if found.chunk_counts else ()
    for name in ("", "cells", "arcs", "edges", "time", *chunks):
        table.add_column(name, justify="right", no_wrap=True)
    most = max(found.relative_loads)
    rows = [
        [str(rank), _bar(load / most if most else 0.0), f"{load:.2f}", *_told(share, bool(chunks))]
        for rank, (load, share) in enumerate(zip(found.relative_loads, found.shares, strict=True))
    ]
    if len(rows) > _MOST_RANKS:
        rows[_MOST_RANKS - 2 : -1] = [["…"] * len(rows[0])]
    for row in rows:
        table.add_row(*row)
    return table


def partition_head(found: Partition) -> list[str]:
    """What is shown, above the table."""
    by = choice_in_short("placement", found.placement.to_json())
    what = f"{by} on {number_of(found.num_ranks, 'rank')}, placed in {duration(found.seconds)}"
    return folded(f"{found.model} on {found.graph}: {number_of(found.num_training, 'training snapshot')}, {what}")


def partition_lines(found: Partition) -> list[str]:
    """The whole of it, beside what training would do by itself."""
    edges = sum(share.bytes_along_edges for share in found.shares)
    parts = f"{file_size(edges)} along edges, {file_size(found.sent_bytes - edges)} in time"
    lines = [
        f"load, {'seconds as predicted' if found.placement.wants_seconds else 'cells and arcs'}: {_uneven(found.load)}",
        f"sent in an epoch: {file_size(found.sent_bytes)} ({parts})",
    ]
    if not found.is_default:
        lines += folded(_compared(found))
    if found.asks_pairs:
        lines += folded("embeddings of the pairs that are asked come on top: nobody knows those before")
    return lines


def _compared(found: Partition) -> str:
    """What it saves or costs beside the default."""
    name, ours, theirs = found.placement.name, found.sent_bytes, found.default_bytes
    if ours < theirs:
        said = f"{name} saves {percent(1 - ours / theirs)} of it"
    elif ours == theirs:
        said = f"{name} sends the same"
    else:
        said = f"{name} sends {times(ours / theirs)} as much" if theirs else f"{name} sends more"
    return f"the default, time-blocks: {file_size(theirs)}, {said}; its load: {_uneven(found.default_load)}"


def _uneven(load: float | None) -> str:
    return "some ranks have nothing" if load is None else f"fullest rank to emptiest {times(load)}"


def _told(share: RankShare, with_chunks: bool) -> list[str]:
    told = [short(share.cells), short(share.arcs), file_size(share.bytes_along_edges), file_size(share.bytes_in_time)]
    if with_chunks and share.chunks is not None:
        told += [short(share.chunks.num_chunks), short(share.chunks.median_cells), short(share.chunks.largest_cells)]
    return told


def _bar(share: float) -> str:
    """Of full and partial blocks."""
    whole, eighths = divmod(round(share * _BAR * 8), 8)
    return "█" * whole + (" ▏▎▍▌▋▊▉"[eighths] if eighths else "")
