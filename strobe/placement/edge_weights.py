"""What it costs to cut an edge, where neighbours are sampled: the rows that are expected to travel along it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from strobe.graph import Snapshot
from strobe.graph.arrays import read_only
from strobe.ops.csr import IntArray

ROW = 1 << 20
"""What a row weighs that surely travels. Weights are whole numbers, so sums of them are the same in any order."""


@dataclass(frozen=True, eq=False)
class Weighed:
    """Who is linked with whom in a snapshot, and how much each link weighs: symmetric, row i of a CSR has the
    neighbours of cell i."""

    row_ptr: IntArray  # [n + 1] int64
    col: IntArray  # [m] int32
    weight: IntArray  # [m] int32

    @property
    def total(self) -> int:
        """All links together, each once."""
        return int(self.weight.sum(dtype=np.int64)) // 2

    def utility(self, owner: IntArray) -> int:
        """The weight of links that are not cut: the communication that owners save."""
        together = owner[self.col] == np.repeat(owner, np.diff(self.row_ptr))
        return int(self.weight[together].sum(dtype=np.int64)) // 2


def weighed(snapshot: Snapshot) -> Weighed:
    """The links of a snapshot, for which W_uv = 1 / d_u + 1 / d_v in rows (Zhang and Wu 2025, §3.4), up to what is the
    same for all: size of batches, fan-out, number of nodes.

    A cell with d arcs draws each with the same chance, and an arc brings its row there: so an arc weighs 1 / d, d of
    where it ends. An undirected edge is two arcs, parallel ones add up, self-loops are never cut and weigh nothing.
    """
    one = (ROW // np.maximum(snapshot.in_degree, 1)).astype(np.int32)
    source, destination = snapshot.arcs()
    if snapshot.directed:
        return _both_ways(source, destination, one)
    weight = np.repeat(one, snapshot.in_degree)
    weight += one[source]
    weight *= source != destination
    return _fixed(snapshot.row_ptr, source, weight)


def _both_ways(source: IntArray, destination: IntArray, one: IntArray) -> Weighed:
    """Every arc in the rows of both of its ends."""
    weight = one[destination].astype(np.int64) * (source != destination)  # of parallel ones there may be many
    ends = np.concatenate((destination, source)), np.concatenate((source, destination))
    links = sp.coo_array((np.concatenate((weight, weight)), ends), shape=(one.size, one.size)).tocsr()
    return _fixed(links.indptr, links.indices, links.data)


def _fixed(row_ptr: IntArray, col: IntArray, weight: IntArray) -> Weighed:
    """Of one type each and read-only: loops are compiled once."""
    arrays = row_ptr.astype(np.int64), col.astype(np.int32, copy=False), weight.astype(np.int32, copy=False)
    return Weighed(*(read_only(array) for array in arrays))
