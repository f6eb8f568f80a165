"""What there is to do, in arcs: those that end in a cell, and what the cell itself is worth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.csr import IntArray
from strobe.placement.base import Placed
from strobe.placement.work import CELL_LOAD


def loads_of_cells(snapshot: Snapshot) -> IntArray:
    """What every cell of a snapshot costs, [n]."""
    return snapshot.in_degree.astype(np.int64) + CELL_LOAD


def loads_of_nodes(graph: DynamicGraph) -> IntArray:
    """What every node costs over all time, [N]; 0 for those that are never present."""
    loads = np.zeros(graph.num_nodes, np.int64)
    for snapshot in graph:
        loads[snapshot.nodes] += loads_of_cells(snapshot)
    return loads


def loads_of_ranks(graph: DynamicGraph, placed: Placed, stretches: Sequence[range]) -> IntArray:
    """What every rank has to do in every stretch of time, [S, W]."""
    loads = np.zeros((len(stretches), placed.num_ranks), np.int64)
    for at, stretch in enumerate(stretches):
        for t in stretch:
            done = np.bincount(placed.owners(graph, t), loads_of_cells(graph[t]), placed.num_ranks)
            loads[at] += done.astype(np.int64)
    return loads


def even_sequences(graph: DynamicGraph, num_ranks: int) -> IntArray:
    """The rank of every node, [N], in order of id: about as many sequences each. Nodes that are never present have
    none and do not count."""
    there = loads_of_nodes(graph) > 0
    number: IntArray = np.maximum(np.cumsum(there) - 1, 0)
    return number * num_ranks // max(int(there.sum()), 1)
