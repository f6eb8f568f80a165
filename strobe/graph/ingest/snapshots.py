"""Staged events, cut and numbered, become the snapshots of a graph."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator
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
from strobe.ops.csr import IntArray, stable_argsort

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection

Block = dict[str, Array]
"""The events of a snapshot: columns src and dst by node, and weight and time where they are needed."""

_BATCH_ROWS = 1 << 18


class Spool:
    """Events by snapshot: every batch is split into pieces, which go to a file per column and are found again."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.names = names
        self._paths = {name: folder / f"{name}.column" for name in names}
        self._files: dict[str, BinaryIO] = {name: path.open("wb") for name, path in self._paths.items()}
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._pieces: dict[int, list[slice]] = {}
        self._rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError):  # on a full disk buffered bytes cannot be written, and need not be
                file.close()

    def add(self, snap: Array, columns: dict[str, Array]) -> None:
        if snap.size == 0:
            return
        if bool((snap[1:] < snap[:-1]).any()):
            order = stable_argsort(snap)
            snap, columns = snap[order], {name: column[order] for name, column in columns.items()}
        bounds = [0, *(np.flatnonzero(snap[1:] != snap[:-1]) + 1).tolist(), snap.size]
        for start, stop in itertools.pairwise(bounds):
            pieces = self._pieces.setdefault(int(snap[start]), [])
            pieces.append(slice(self._rows + start, self._rows + stop))
        for name, column in columns.items():
            self._dtypes[name] = column.dtype
            self._files[name].write(np.ascontiguousarray(column).data)
        self._rows += snap.size

    def blocks(self, num_snapshots: int) -> Iterator[dict[str, Array]]:
        """The columns of snapshot 0, 1, 2, …, empty ones included."""
        for file in self._files.values():
            file.close()
        stored: dict[str, Array] = {
            name: np.memmap(path, self._dtypes[name], mode="r") if self._rows else np.empty(0, np.int64)
            for name, path in self._paths.items()
        }
        for t in range(num_snapshots):
            pieces = self._pieces.get(t, [slice(0, 0)])
            yield {name: np.concatenate([column[piece] for piece in pieces]) for name, column in stored.items()}


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
    on_progress: Callable[[int, int], None],
) -> None:
    """Adds every snapshot of the cut to the builder, in order; memory holds the events of those an edge lives for."""
    total = len(cut.names)

    def prepared() -> Iterator[dict[str, Any]]:
        alive: deque[Block] = deque(maxlen=options.life)
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
    the order of rows."""
    if options.weight is None:
        return [Edges(block["src"], block["dst"]) for block in alive]
    joined = {name: np.concatenate([block[name] for block in alive]) for name in alive[0]}
    weight = joined["weight"]
    order = np.lexsort((weight, joined["time"])) if "time" in joined else np.argsort(weight, kind="stable")
    return Edges(joined["src"][order], joined["dst"][order], weight[order])


def _present(alive: deque[Block], presence: Presence, seen: Array, dated: IntArray | None) -> IntArray | None:
    """The nodes present in a snapshot; ``seen`` collects those that ever were. None means all."""
    if presence == "always":
        return None
    if presence == "active":
        seen[:] = False
    for block in alive:
        seen[block["src"]] = True
        seen[block["dst"]] = True
    if dated is not None:
        seen[dated] = True
    return np.flatnonzero(seen)
