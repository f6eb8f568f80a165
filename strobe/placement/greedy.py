"""METIS on the first snapshot; later nodes go to the smallest rank."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import ClassVar

import numpy as np

from strobe.comm import NO_RANK
from strobe.graph import Snapshot
from strobe.ops.sparse.csr import IntArray
from strobe.placement.algorithms.metis import part_graph, snapshot_adjacency
from strobe.placement.loads import loads_of_cells
from strobe.placement.streaming import StickyPartitioner, StickyPlacement


@dataclass(frozen=True, kw_only=True)
class Greedy(StickyPlacement):
    """METIS on the first non-empty snapshot; nodes keep their rank, and new nodes go to the rank with fewest nodes.

    A baseline of Zhang and Wu 2025, §5.1, which does not specify new nodes. Later edges are cut at random, and loads
    drift as degrees change.
    """

    name: ClassVar[str] = "greedy"

    def start(self, num_ranks: int, *, seed: int = 0) -> StickyPartitioner:
        """Start a partitioner without snapshots."""
        return _GreedyPartitioner(num_ranks, seed)


class _GreedyPartitioner(StickyPartitioner):
    def __init__(self, num_ranks: int, seed: int) -> None:
        super().__init__(num_ranks)
        self._seed = seed

    def _assign_new(self, snapshot: Snapshot, new: IntArray) -> IntArray:
        owners = self._node_owner[self._node_owner != NO_RANK]
        if not owners.size:
            return part_graph(snapshot_adjacency(snapshot), loads_of_cells(snapshot), self._num_ranks, self._seed)
        return assign_to_smallest(np.bincount(owners, minlength=self._num_ranks), new.size)


def assign_to_smallest(counts: IntArray, num_new: int) -> IntArray:
    """Assign ``num_new`` nodes one by one to the rank with fewest nodes, ties to the first."""
    ranks = [(int(count), rank) for rank, count in enumerate(counts)]
    heapify(ranks)
    owner = np.empty(num_new, np.int16)
    for i in range(num_new):
        count, rank = ranks[0]
        heapreplace(ranks, (count + 1, rank))
        owner[i] = rank
    return owner
