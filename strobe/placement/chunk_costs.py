"""What chunks cost: to compute, and in bytes where they are cut."""

from __future__ import annotations

import numpy as np

from strobe.graph import DynamicGraph
from strobe.ops.csr import FloatArray, IntArray, distinct
from strobe.ops.labels import Labels, Links, Sums, read_elsewhere
from strobe.placement.work import Sizes, Work, counted


def nodes_of_cells(graph: DynamicGraph) -> IntArray:
    """The node of every cell, [C]."""
    return np.concatenate([np.empty(0, np.int64), *(snapshot.nodes for snapshot in graph)])


def counted_cells(graph: DynamicGraph) -> Sums:
    """What every cell costs by counting, [C]."""
    arcs = _arcs_of_cells(graph)
    one = np.ones(len(arcs), np.int64)
    return counted(Sizes(one, arcs, one)).astype(np.int64)


def typical_length(graph: DynamicGraph) -> float:
    """The length of the sequence that a cell is in, on average."""
    length = np.bincount(nodes_of_cells(graph)).astype(np.float64)
    return float((length**2).sum() / max(length.sum(), 1))


def sizes_of_chunks(graph: DynamicGraph, chunk: IntArray, num_chunks: int) -> Sizes:
    """How large every chunk is."""
    member = distinct(chunk.astype(np.int64) * graph.num_nodes + nodes_of_cells(graph))
    return Sizes(
        np.bincount(chunk, minlength=num_chunks),
        np.bincount(chunk, _arcs_of_cells(graph), num_chunks).astype(np.int64),
        np.bincount(member // graph.num_nodes, minlength=num_chunks),
    )


def loads_of_chunks(sizes: Sizes, num_ranks: int, work: Work) -> FloatArray:
    """What every chunk adds to a rank, [K]: the cost of a rank that has nothing but chunks like it, shared out.

    A rank computes its chunks together; alone a small one would seem too dear.
    """
    scale = sizes.cells.sum() / num_ranks / np.maximum(sizes.cells, 1)
    loads: FloatArray = work.loads(sizes.times(scale)) / scale
    return loads


def bytes_cut(graph: DynamicGraph, links: Links, owner: Labels, num_ranks: int, work: Work) -> float:
    """What ranks send in a pass forward, about: directed edges count both ways."""
    rows = int(read_elsewhere(links, owner, num_ranks).sum())
    later = links.before >= 0
    cuts = int((owner[later] != owner[links.before[later]]).sum())
    away = _away(nodes_of_cells(graph), owner, num_ranks) if work.cell_bytes else 0
    return work.arc_bytes * rows + work.state_bytes * cuts + work.cell_bytes * away


def _away(nodes: IntArray, owner: Labels, num_ranks: int) -> int:
    """Cells that are not with the rank that has most of their sequence."""
    pair = np.sort(nodes.astype(np.int64) * num_ranks + owner)
    first = np.flatnonzero(np.concatenate(([True], pair[1:] != pair[:-1]))) if pair.size else pair
    count = np.diff(first, append=pair.size)
    most = np.zeros(int(nodes.max(initial=-1)) + 1, np.int64)
    np.maximum.at(most, pair[first] // num_ranks, count)
    return int(count.sum() - most.sum())


def _arcs_of_cells(graph: DynamicGraph) -> IntArray:
    return np.concatenate([np.empty(0, np.int64), *(snapshot.in_degree for snapshot in graph)])
