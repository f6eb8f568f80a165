"""Staged events, cut and numbered, become the snapshots of a graph; and the inverse, tables of a graph."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np

from strobe.errors import InputError
from strobe.graph.arrays import Array
from strobe.graph.build import Edges, GraphBuilder
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.ingest.clock import SnapshotBoundaries
from strobe.graph.ingest.nodes import NodeValues
from strobe.graph.ingest.numbering import Numbering
from strobe.graph.ingest.options import IngestOptions, Presence
from strobe.graph.ingest.table import prefetch
from strobe.graph.progress import OnProgress
from strobe.graph.snapshot import Snapshot
from strobe.io.lazy_import import lazy_import
from strobe.ops.sparse.csr import IntArray, distinct, stable_argsort

if TYPE_CHECKING:
    import pyarrow as pa

    from strobe.graph.ingest.table import Connection
else:
    pa = lazy_import("pyarrow")


EventColumns = dict[str, Array]
"""Events of a snapshot: columns src and dst by node, and weight and time if needed."""

EVENTS_PER_RUN = 1 << 21
"""Events sorted at once on their way into snapshots."""

_BATCH_ROWS = 1 << 18


class Spool:
    """External sort of events by snapshot: sorted runs in one file per column, with an index by snapshot."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.names = names
        self._paths = {name: folder / f"{name}.column" for name in names}
        self._files: dict[str, BinaryIO] = {name: path.open("wb") for name, path in self._paths.items()}
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._waiting: list[tuple[Array, EventColumns]] = []
        self._num_waiting = 0
        self._runs: list[tuple[Array, Array]] = []  # per run: snapshots and their first rows
        self._rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError):  # a full disk cannot take the buffered bytes
                file.close()

    def add(self, snap: Array, block: EventColumns) -> None:
        """Add events with their snapshots; sorted ones are a run at once, others are buffered."""
        if not bool((snap[1:] < snap[:-1]).any()):
            self._write_run(snap, block)
            return
        self._waiting.append((snap, block))
        self._num_waiting += snap.size
        if self._num_waiting >= EVENTS_PER_RUN:
            self._sort_waiting()

    def blocks(self, num_snapshots: int) -> Iterator[EventColumns]:
        """Yield the columns of snapshot 0, 1, 2, …, empty ones included."""
        self._sort_waiting()
        for file in self._files.values():
            file.close()
        stored: EventColumns = {
            name: np.memmap(path, self._dtypes[name], mode="r") if self._rows else np.empty(0, np.int64)
            for name, path in self._paths.items()
        }
        for t in range(num_snapshots):
            pieces = [slice(*begins[np.searchsorted(snaps, (t, t + 1))]) for snaps, begins in self._runs]
            yield {name: np.concatenate([column[:0], *(column[p] for p in pieces)]) for name, column in stored.items()}

    def _sort_waiting(self) -> None:
        if self._waiting:
            snap = np.concatenate([snap for snap, _ in self._waiting])
            order = stable_argsort(snap)
            joined = {name: np.concatenate([block[name] for _, block in self._waiting]) for name in self.names}
            self._write_run(snap[order], {name: column[order] for name, column in joined.items()})
            self._waiting, self._num_waiting = [], 0

    def _write_run(self, snap: Array, block: EventColumns) -> None:
        if not snap.size:
            return
        assert snap[0] >= 0, "an event before the first snapshot would be lost"
        for name, column in block.items():
            self._dtypes[name] = column.dtype
            self._files[name].write(np.ascontiguousarray(column).data)
        first = np.flatnonzero(np.concatenate(([True], snap[1:] != snap[:-1])))
        self._runs.append((snap[first], self._rows + np.append(first, snap.size)))
        self._rows += snap.size


def needed_columns(options: IngestOptions) -> list[str]:
    """Return the columns needed after cutting; time breaks ties between weights."""
    if options.weight is None:
        return ["src", "dst"]
    by_time = options.parallel == "last" and options.time is not None
    return ["src", "dst", "weight", *(["time"] if by_time else [])]


def sort_events(con: Connection, spool: Spool, cut: SnapshotBoundaries, numbering: Numbering) -> None:
    """Sort all events by snapshot, with nodes for ids, in one pass over the staged table."""
    names = spool.names
    selected = ", ".join([f"{cut.sql or 'time'} AS snap", numbering.select("src", "dst"), *names[2:]])
    starts = None if cut.sql is not None or cut.starts is None else np.array(cut.starts)
    source = numbering.source(cut.source, "src", "dst")
    reader = con.sql(f"SELECT {selected} FROM {source}").to_arrow_reader(_BATCH_ROWS)

    def numbered() -> Iterator[tuple[Array, dict[str, Array]]]:
        for batch in reader:
            columns: list[Array]
            snap, *columns = (np.from_dlpack(column) for column in batch.columns)
            number = snap if starts is None else np.searchsorted(starts, snap, side="right") - 1
            columns[:2] = [numbering.nodes(column) for column in columns[:2]]
            yield number, dict(zip(names, columns, strict=True))

    for snap, block in prefetch(numbered()):
        spool.add(snap, block)


def add_snapshots(
    builder: GraphBuilder,
    spool: Spool,
    options: IngestOptions,
    cut: SnapshotBoundaries,
    values: NodeValues | None,
    on_progress: OnProgress,
) -> None:
    """Add every snapshot to the builder, in order; memory holds the events of ``life`` snapshots."""
    total = len(cut.names)

    def prepared() -> Iterator[dict[str, Any]]:
        alive: deque[EventColumns] = deque(maxlen=min(options.life, total))
        seen = np.zeros(builder.num_nodes, np.bool_)
        for t, block in enumerate(spool.blocks(total)):
            alive.append(block)
            nodes = _present_nodes(alive, options.presence, seen, None if values is None else values.present(t))
            x, y = (None, None) if values is None else values.at(t, nodes)
            yield {"edges": _alive_edges(alive, options), "nodes": nodes, "time": cut.names[t], "x": x, "y": y}

    for t, snapshot in enumerate(prefetch(prepared())):
        on_progress(t, total)
        builder.add(**snapshot)
    on_progress(total, total)


def _alive_edges(alive: deque[EventColumns], options: IngestOptions) -> Edges | list[Edges]:
    """Return the edges of the living blocks. Weights are ordered by snapshot and time if the last one counts, else by
    value, so that sums and ties do not depend on the order of rows."""
    if options.weight is None:
        return [Edges(block["src"], block["dst"]) for block in alive]
    joined = {name: np.concatenate([block[name] for block in alive]) for name in alive[0]}
    keys = [joined["weight"], *([joined["time"]] if "time" in joined else [])]
    if options.parallel == "last":
        keys.append(np.repeat(np.arange(len(alive)), [block["src"].size for block in alive]))
    order = np.lexsort(keys)
    return Edges(joined["src"][order], joined["dst"][order], joined["weight"][order])


def _present_nodes(
    alive: deque[EventColumns], presence: Presence, seen: Array, dated: IntArray | None
) -> IntArray | None:
    """Return the nodes present in a snapshot (None: all); ``seen`` collects all present so far."""
    if presence == "always":
        return None
    ends = [block[end] for block in alive for end in ("src", "dst")] + ([] if dated is None else [dated])
    if presence == "active":
        if 16 * sum(column.size for column in ends) < seen.size:
            return distinct(np.concatenate(ends))
        seen[:] = False
    for column in ends:
        seen[column] = True
    return np.flatnonzero(seen)


def to_events(graph: DynamicGraph) -> tuple[pa.Table, pa.Table]:
    """Return a graph as two tables, the inverse of ``ingest`` by column "snapshot".

    The first has a row per edge (snapshot, src, dst and, if weighted, weight), the second a row per cell (snapshot,
    node, x0, x1, …, label).
    """
    if graph.labels is not None and graph.labels.shape:
        raise InputError(f"labels of shape {graph.labels.shape} do not fit into one column")
    edges, cells = [], []
    for snapshot in graph:
        src, dst, weight = snapshot.edges()
        edges.append(_snapshot_table(snapshot, {"src": src, "dst": dst}, {"weight": weight}))
        x, y = snapshot.x, snapshot.y
        features = {} if x is None else {f"x{k}": x[:, k] for k in range(x.shape[1])}
        cells.append(_snapshot_table(snapshot, {"node": snapshot.nodes}, {**features, "label": y}))
    if not edges:
        none = np.empty(0, np.int64)
        return pa.table({"snapshot": none, "src": none, "dst": none}), pa.table({"snapshot": none, "node": none})
    return pa.concat_tables(edges), pa.concat_tables(cells)


def _snapshot_table(snapshot: Snapshot, ids: dict[str, IntArray], values: dict[str, Array | None]) -> pa.Table:
    """Return the rows of one snapshot; ids are int64, so that tables of all snapshots have one schema."""
    columns: dict[str, Array] = {name: column.astype(np.int64) for name, column in ids.items()}
    size = next(iter(columns.values())).size
    columns |= {name: np.ascontiguousarray(column) for name, column in values.items() if column is not None}
    return pa.table({"snapshot": np.full(size, snapshot.t), **columns})
