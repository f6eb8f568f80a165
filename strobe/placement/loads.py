"""Loads of cells, nodes and ranks, in arcs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.sparse.csr import IntArray
from strobe.placement.base import Partition
from strobe.placement.model_costs import CELL_LOAD


def loads_of_cells(snapshot: Snapshot) -> IntArray:
    """Load of every cell of a snapshot, [n]."""
    return snapshot.in_degree.astype(np.int64) + CELL_LOAD


def loads_of_nodes(graph: DynamicGraph) -> IntArray:
    """Load of every node over all snapshots, [N]; 0 if never present."""
    loads = np.zeros(graph.num_nodes, np.int64)
    for snapshot in graph:
        loads[snapshot.nodes] += loads_of_cells(snapshot)
    return loads


def loads_of_ranks(graph: DynamicGraph, partition: Partition, spans: Sequence[range]) -> IntArray:
    """Load of every rank in every span of snapshots, [S, W]."""
    loads = np.zeros((len(spans), partition.num_ranks), np.int64)
    for i, span in enumerate(spans):
        for t in span:
            load = np.bincount(partition.owners(graph, t), loads_of_cells(graph[t]), partition.num_ranks)
            loads[i] += load.astype(np.int64)
    return loads


def split_sequences_evenly(graph: DynamicGraph, num_ranks: int) -> IntArray:
    """Rank of every node, [N], by id, with similar numbers of sequences. Nodes that are never present do not count."""
    present = loads_of_nodes(graph) > 0
    index: IntArray = np.maximum(np.cumsum(present) - 1, 0)
    return index * num_ranks // max(int(present.sum()), 1)
