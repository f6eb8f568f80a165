"""The way back: a graph as tables of events and cells."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from strobe.errors import InputError
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Array
from strobe.graph.snapshot import Snapshot
from strobe.ops.csr import IntArray


def to_events(graph: DynamicGraph) -> tuple[pa.Table, pa.Table]:
    """A graph as two tables, the inverse of ``ingest`` by column "snapshot".

    The first has a row per edge (snapshot, src, dst and, if weighted, weight), the second a row per cell (snapshot,
    node, x0, x1, …, label).
    """
    if graph.labels is not None and graph.labels.shape:
        raise InputError(f"labels of shape {graph.labels.shape} do not fit into one column")
    edges, cells = [], []
    for snapshot in graph:
        src, dst, weight = snapshot.edges()
        edges.append(_table(snapshot, {"src": src, "dst": dst}, {"weight": weight}))
        x, y = snapshot.x, snapshot.y
        features = {} if x is None else {f"x{k}": x[:, k] for k in range(x.shape[1])}
        cells.append(_table(snapshot, {"node": snapshot.nodes}, {**features, "label": y}))
    if not edges:
        none = np.empty(0, np.int64)
        return pa.table({"snapshot": none, "src": none, "dst": none}), pa.table({"snapshot": none, "node": none})
    return pa.concat_tables(edges), pa.concat_tables(cells)


def _table(snapshot: Snapshot, ids: dict[str, IntArray], values: dict[str, Array | None]) -> pa.Table:
    """Rows of one snapshot; int64 ids, so that tables of all snapshots fit together."""
    columns: dict[str, Array] = {name: column.astype(np.int64) for name, column in ids.items()}
    size = next(iter(columns.values())).size
    columns |= {name: np.ascontiguousarray(column) for name, column in values.items() if column is not None}
    return pa.table({"snapshot": np.full(size, snapshot.t), **columns})
