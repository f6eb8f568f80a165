"""Staged events, cut and numbered, become the snapshots of a graph."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np

from strobe.graph.build import Edges, GraphBuilder
from strobe.graph.features import Array
from strobe.graph.ingest.ahead import ahead
from strobe.graph.ingest.clock import Cut
from strobe.graph.ingest.nodes import NodeValues
from strobe.graph.ingest.numbering import Numbering
from strobe.graph.ingest.options import Options, Presence
from strobe.graph.progress import OnProgress
from strobe.ops.csr import IntArray, distinct, stable_argsort

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection

Block = dict[str, Array]
"""The events of a snapshot: columns src and dst by node, and weight and time where they are needed."""

RUN_EVENTS = 1 << 21
"""Events sorted at once on their way into snapshots."""

_BATCH_ROWS = 1 << 18


class Spool:
    """Events by snapshot: sorted in runs, which go to a file per column, and in which every snapshot is found again."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.names = names
        self._paths = {name: folder / f"{name}.column" for name in names}
        self._files: dict[str, BinaryIO] = {name: path.open("wb") for name, path in self._paths.items()}
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._waiting: list[tuple[Array, Block]] = []
        self._num_waiting = 0
        self._runs: list[tuple[Array, Array]] = []  # a run's snapshots, ascending, and the rows at which each begins
        self._rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError):  # on a full disk buffered bytes cannot be written, and need not be
                file.close()

    def add(self, snap: Array, block: Block) -> None:
        """Takes more events and the snapshot of each; those in order are a run as they are, others wait for more."""
        if not bool((snap[1:] < snap[:-1]).any()):
            self._write_run(snap, block)
            return
        self._waiting.append((snap, block))
        self._num_waiting += snap.size
        if self._num_waiting >= RUN_EVENTS:
            self._sort_waiting()

    def blocks(self, num_snapshots: int) -> Iterator[Block]:
        """The columns of snapshot 0, 1, 2, …, empty ones included."""
        self._sort_waiting()
        for file in self._files.values():
            file.close()
        stored: Block = {
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

    def _write_run(self, snap: Array, block: Block) -> None:
        if not snap.size:
            return
        assert snap[0] >= 0, "an event before the first snapshot would be lost"
        for name, column in block.items():
            self._dtypes[name] = column.dtype
            self._files[name].write(np.ascontiguousarray(column).data)
        first = np.flatnonzero(np.concatenate(([True], snap[1:] != snap[:-1])))
        self._runs.append((snap[first], self._rows + np.append(first, snap.size)))
        self._rows += snap.size


def needed_columns(options: Options) -> list[str]:
    """What must be known of an event once it has found its snapshot; ties between weights are broken by time."""
    if options.weight is None:
        return ["src", "dst"]
    by_time = options.merging == "last" and options.time is not None
    return ["src", "dst", "weight", *(["time"] if by_time else [])]


def sort_events(con: Connection, spool: Spool, cut: Cut, numbering: Numbering) -> None:
    """All events by node, sorted into their snapshots, in one pass over the staged table."""
    names = spool.names
    picked = ", ".join([f"{cut.sql or 'time'} AS snap", numbering.select("src", "dst"), *names[2:]])
    starts = None if cut.sql is not None or cut.starts is None else np.array(cut.starts)
    source = numbering.source(cut.source, "src", "dst")
    reader = con.sql(f"SELECT {picked} FROM {source}").to_arrow_reader(_BATCH_ROWS)

    def numbered() -> Iterator[tuple[Array, dict[str, Array]]]:
        for batch in reader:
            columns: list[Array]
            snap, *columns = (np.from_dlpack(column) for column in batch.columns)
            number = snap if starts is None else np.searchsorted(starts, snap, side="right") - 1
            columns[:2] = [numbering.nodes(column) for column in columns[:2]]
            yield number, dict(zip(names, columns, strict=True))

    for snap, block in ahead(numbered()):
        spool.add(snap, block)


def add_snapshots(
    builder: GraphBuilder,
    spool: Spool,
    options: Options,
    cut: Cut,
    values: NodeValues | None,
    on_progress: OnProgress,
) -> None:
    """Adds every snapshot of the cut to the builder, in order; memory holds the events of those an edge lives for."""
    total = len(cut.names)

    def prepared() -> Iterator[dict[str, Any]]:
        alive: deque[Block] = deque(maxlen=min(options.life, total))
        seen = np.zeros(builder.num_nodes, np.bool_)
        for t, block in enumerate(spool.blocks(total)):
            alive.append(block)
            nodes = _present(alive, options.presence, seen, None if values is None else values.present(t))
            x, y = (None, None) if values is None else values.at(t, nodes)
            yield {"edges": _edges(alive, options), "nodes": nodes, "time": cut.names[t], "x": x, "y": y}

    for t, snapshot in enumerate(ahead(prepared())):
        on_progress(t, total)
        builder.add(**snapshot)
    on_progress(total, total)


def _edges(alive: deque[Block], options: Options) -> Edges | list[Edges]:
    """The edges of the living blocks. Weights come in an order of their own, so that sums and ties do not depend on
    the order of rows: by snapshot and time where the last one counts, else by size."""
    if options.weight is None:
        return [Edges(block["src"], block["dst"]) for block in alive]
    joined = {name: np.concatenate([block[name] for block in alive]) for name in alive[0]}
    keys = [joined["weight"], *([joined["time"]] if "time" in joined else [])]
    if options.merging == "last":
        keys.append(np.repeat(np.arange(len(alive)), [block["src"].size for block in alive]))
    order = np.lexsort(keys)
    return Edges(joined["src"][order], joined["dst"][order], joined["weight"][order])


def _present(alive: deque[Block], presence: Presence, seen: Array, dated: IntArray | None) -> IntArray | None:
    """The nodes present in a snapshot; ``seen`` collects those that ever were. None means all."""
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
