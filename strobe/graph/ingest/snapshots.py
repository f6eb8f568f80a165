"""Staged events, cut and numbered, become the snapshots of a graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from strobe.graph.build import Edges, GraphBuilder
from strobe.graph.features import Array
from strobe.graph.ingest.clock import Cut
from strobe.graph.ingest.nodes import NodeValues
from strobe.graph.ingest.numbering import Numbering
from strobe.graph.ingest.options import Options, Presence
from strobe.ops.csr import IntArray

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection

_BATCH_ROWS = 1 << 19


@dataclass(frozen=True)
class _Block:
    """The events of one snapshot, by node."""

    src: IntArray
    dst: IntArray
    weight: Array | None
    time: Array | None


def add_snapshots(
    con: Connection,
    builder: GraphBuilder,
    options: Options,
    cut: Cut,
    numbering: Numbering,
    values: NodeValues | None,
    on_progress: Callable[[int, int], None],
) -> None:
    """Adds every snapshot of the cut to the builder, in order; memory holds those an edge lives for."""
    total = len(cut.names)
    blocks = _blocks(con, options, cut, numbering)
    alive: deque[_Block] = deque(maxlen=options.life)
    seen = np.zeros(numbering.num_nodes, bool)
    for t in range(total):
        on_progress(t, total)
        alive.append(next(blocks))
        nodes = _present(alive, options.presence, seen, None if values is None else values.present(t))
        x, y = (None, None) if values is None else values.at(t, nodes)
        builder.add(_edges(alive, options), nodes=nodes, time=cut.names[t], x=x, y=y)
    on_progress(total, total)


def _blocks(con: Connection, options: Options, cut: Cut, numbering: Numbering) -> Iterator[_Block]:
    """The events of snapshot 0, 1, 2, …, empty ones included, streamed in order."""
    extra = ["weight"] if options.weight is not None else []
    if extra and options.merging == "last" and options.time is not None:
        extra.append("time")
    picked = ", ".join([f"{cut.sql} AS snap", numbering.select("src", "dst"), *extra])
    query = f"SELECT {picked} FROM {numbering.source(cut.source, 'src', 'dst')} ORDER BY snap"
    reader = con.sql(query).to_arrow_reader(_BATCH_ROWS)
    pending: dict[int, list[list[Any]]] = {}
    at = 0
    for batch in reader:
        columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
        snap = columns[0]
        columns[1], columns[2] = numbering.nodes(columns[1]), numbering.nodes(columns[2])
        bounds = np.flatnonzero(np.diff(snap)) + 1
        for start, stop in zip([0, *bounds], [*bounds, snap.size], strict=True):
            pending.setdefault(int(snap[start]), []).append([column[start:stop] for column in columns[1:]])
        while at < snap[-1]:
            yield _block(pending.pop(at, []), extra)
            at += 1
    while True:
        yield _block(pending.pop(at, []), extra)
        at += 1


def _block(parts: list[list[Any]], extra: list[str]) -> _Block:
    if not parts:
        empty = np.empty(0, np.int64)
        carried = {name: np.empty(0, np.float64 if name == "time" else np.float32) for name in extra}
        return _Block(empty, empty, carried.get("weight"), carried.get("time"))
    columns = dict(
        zip(["src", "dst", *extra], (np.concatenate(column) for column in zip(*parts, strict=True)), strict=True)
    )
    return _Block(columns["src"], columns["dst"], columns.get("weight"), columns.get("time"))


def _edges(alive: deque[_Block], options: Options) -> Edges | list[Edges]:
    """The edges of the living blocks. Weights come in an order of their own, so that sums and ties do not depend on
    the order of rows."""
    if options.weight is None:
        return [Edges(block.src, block.dst) for block in alive]
    src, dst, weight = (np.concatenate([getattr(b, name) for b in alive]) for name in ("src", "dst", "weight"))
    times = [block.time for block in alive if block.time is not None]
    order = np.lexsort((weight, np.concatenate(times))) if times else np.argsort(weight, kind="stable")
    return Edges(src[order], dst[order], weight[order])


def _present(alive: deque[_Block], presence: Presence, seen: Array, dated: IntArray | None) -> IntArray | None:
    """The nodes present in a snapshot; ``seen`` collects those that ever were. None means all."""
    if presence == "always":
        return None
    if presence == "active":
        seen[:] = False
    for block in alive:
        seen[block.src] = True
        seen[block.dst] = True
    if dated is not None:
        seen[dated] = True
    return np.flatnonzero(seen)
