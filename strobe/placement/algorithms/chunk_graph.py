"""All cells as one graph, and what chunks of cells cost in load and bytes."""

from __future__ import annotations

import numpy as np

from strobe.errors import InputError
from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.graph.label_propagation import Labels, Links, Sums, count_remote_reads
from strobe.ops.sparse.csr import FloatArray, IntArray, distinct
from strobe.placement.algorithms.metis import snapshot_adjacency
from strobe.placement.model_costs import CellSetSizes, ModelCosts, count_load


def link_cells(graph: DynamicGraph, arc_weight: float, chain_weight: float) -> Links:
    """Link cells in snapshot-major order: pairs with an edge by ``arc_weight``, consecutive cells by ``chain_weight``.

    Memory: 4 bytes per arc (both ways), 16 per cell.
    """
    if graph.num_cells >= 1 << 31:
        raise InputError(
            f"placement chunks supports fewer than {1 << 31:,} cells at a time, not {graph.num_cells:,}: "
            "train in windows, or choose placement time-blocks"
        )
    row_ptr = np.zeros(graph.num_cells + 1, np.int64)
    col = np.empty(graph.num_arcs * (2 if graph.directed else 1), np.int32)
    end = 0
    for snapshot in graph:
        first = int(graph.cell_ptr[snapshot.t])
        degree, read = _neighbors(snapshot)
        row_ptr[first + 1 : first + 1 + snapshot.num_nodes] = end + np.cumsum(degree)
        col[end : end + len(read)] = read
        col[end : end + len(read)] += first
        end += len(read)
    return Links(row_ptr, col[:end], np.array([arc_weight], np.float32), *_sequence_neighbors(graph), chain_weight)


def _neighbors(snapshot: Snapshot) -> tuple[IntArray, IntArray]:
    """Degree and neighbors of each cell in the symmetric graph without parallel edges and self-loops."""
    if snapshot.directed:
        adjacency = snapshot_adjacency(snapshot)
        return np.diff(adjacency.indptr), adjacency.indices
    read, reader = snapshot.arcs()
    unique = read != reader
    unique[1:] &= (read[1:] != read[:-1]) | (reader[1:] != reader[:-1])  # sources of a cell are sorted
    return np.bincount(reader[unique], minlength=snapshot.num_nodes), read[unique]


def _sequence_neighbors(graph: DynamicGraph) -> tuple[Labels, Labels]:
    """Previous and next cell of each cell in its sequence, -1 if none."""
    before, after = (np.full(graph.num_cells, -1, np.int32) for _ in range(2))
    last = np.full(graph.num_nodes, -1, np.int32)
    for snapshot in graph:
        first = int(graph.cell_ptr[snapshot.t])
        cells = np.arange(first, first + snapshot.num_nodes, dtype=np.int32)
        previous = last[snapshot.nodes]
        before[cells] = previous
        after[previous[previous >= 0]] = cells[previous >= 0]
        last[snapshot.nodes] = cells
    return before, after


def nodes_of_cells(graph: DynamicGraph) -> IntArray:
    """Node of every cell, [C]."""
    return np.concatenate([np.empty(0, np.int64), *(snapshot.nodes for snapshot in graph)])


def count_cell_loads(graph: DynamicGraph) -> Sums:
    """Counted load of every cell, [C]."""
    arcs = _arcs_of_cells(graph)
    one = np.ones(len(arcs), np.int64)
    return count_load(CellSetSizes(one, arcs, one)).astype(np.int64)


def expected_sequence_length(graph: DynamicGraph) -> float:
    """Mean length of the sequence of a cell."""
    length = np.bincount(nodes_of_cells(graph)).astype(np.float64)
    return float((length**2).sum() / max(length.sum(), 1))


def sizes_of_chunks(graph: DynamicGraph, chunk: IntArray, num_chunks: int) -> CellSetSizes:
    """Sizes of all chunks."""
    member = distinct(chunk.astype(np.int64) * graph.num_nodes + nodes_of_cells(graph))
    return CellSetSizes(
        np.bincount(chunk, minlength=num_chunks),
        np.bincount(chunk, _arcs_of_cells(graph), num_chunks).astype(np.int64),
        np.bincount(member // graph.num_nodes, minlength=num_chunks),
    )


def loads_of_chunks(sizes: CellSetSizes, num_ranks: int, costs: ModelCosts) -> FloatArray:
    """Load that every chunk adds to a rank, [K]: its share of the cost of a rank full of such chunks.

    A rank computes its chunks together; the cost of a small chunk alone would be too high.
    """
    scale = sizes.cells.sum() / num_ranks / np.maximum(sizes.cells, 1)
    loads: FloatArray = costs.load_model(sizes.scale_by(scale)) / scale
    return loads


def cut_bytes(graph: DynamicGraph, links: Links, owner: Labels, num_ranks: int, costs: ModelCosts) -> float:
    """Approximate bytes sent in a forward pass; directed edges count both ways."""
    rows = int(count_remote_reads(links, owner, num_ranks).sum())
    later = links.before >= 0
    cuts = int((owner[later] != owner[links.before[later]]).sum())
    displaced = _count_displaced(nodes_of_cells(graph), owner, num_ranks) if costs.cell_bytes else 0
    return costs.arc_bytes * rows + costs.state_bytes * cuts + costs.cell_bytes * displaced


def _count_displaced(nodes: IntArray, owner: Labels, num_ranks: int) -> int:
    """Number of cells that are not on the majority rank of their sequence."""
    pair = np.sort(nodes.astype(np.int64) * num_ranks + owner)
    first = np.flatnonzero(np.concatenate(([True], pair[1:] != pair[:-1]))) if pair.size else pair
    count = np.diff(first, append=pair.size)
    most = np.zeros(int(nodes.max(initial=-1)) + 1, np.int64)
    np.maximum.at(most, pair[first] // num_ranks, count)
    return int(count.sum() - most.sum())


def _arcs_of_cells(graph: DynamicGraph) -> IntArray:
    return np.concatenate([np.empty(0, np.int64), *(snapshot.in_degree for snapshot in graph)])
