"""All cells of a graph as one graph: linked along edges, and in the rows of their sequences."""

from __future__ import annotations

import numpy as np

from strobe.errors import InputError
from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.csr import IntArray
from strobe.ops.labels import Labels, Links
from strobe.placement.union import links


def cell_links(graph: DynamicGraph, arc: float, chain: float) -> Links:
    """The cells, t-major: pairs with an edge weigh ``arc``, consecutive cells of a node ``chain``.

    Memory: 4 bytes per arc (both ways), 16 per cell.
    """
    if graph.num_cells >= 1 << 31:
        raise InputError(
            f"chunks are made of fewer than {1 << 31:,} cells at a time, not {graph.num_cells:,}: "
            "train in windows, or choose placement time-blocks"
        )
    row_ptr = np.zeros(graph.num_cells + 1, np.int64)
    col = np.empty(graph.num_arcs * (2 if graph.directed else 1), np.int32)
    end = 0
    for snapshot in graph:
        first = int(graph.cell_ptr[snapshot.t])
        degree, read = _neighbours(snapshot)
        row_ptr[first + 1 : first + 1 + snapshot.num_nodes] = end + np.cumsum(degree)
        col[end : end + len(read)] = read
        col[end : end + len(read)] += first
        end += len(read)
    return Links(row_ptr, col[:end], np.array([arc], np.float32), *_in_rows(graph), chain)


def _neighbours(snapshot: Snapshot) -> tuple[IntArray, IntArray]:
    """How many others each cell is linked with, and with whom: every pair once each way, however many edges it has."""
    if snapshot.directed:
        found = links(snapshot)
        return np.diff(found.indptr), found.indices
    read, reader = snapshot.arcs()
    kept = read != reader
    kept[1:] &= (read[1:] != read[:-1]) | (reader[1:] != reader[:-1])  # sources of a cell are in order
    return np.bincount(reader[kept], minlength=snapshot.num_nodes), read[kept]


def _in_rows(graph: DynamicGraph) -> tuple[Labels, Labels]:
    """The cell before and the one after each in its sequence."""
    before, after = (np.full(graph.num_cells, -1, np.int32) for _ in range(2))
    last = np.full(graph.num_nodes, -1, np.int32)
    for snapshot in graph:
        first = int(graph.cell_ptr[snapshot.t])
        here = np.arange(first, first + snapshot.num_nodes, dtype=np.int32)
        was = last[snapshot.nodes]
        before[here] = was
        after[was[was >= 0]] = here[was >= 0]
        last[snapshot.nodes] = here
    return before, after
