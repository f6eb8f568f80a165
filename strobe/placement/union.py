"""Who is ever linked with whom: the snapshots as graphs that partitioners read."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.csr import IntArray


def links(snapshot: Snapshot) -> sp.csr_array:
    """The pairs of cells with an edge, [n, n]: symmetric, 1 each however many edges join a pair, no self-loops."""
    source, destination = snapshot.arcs()
    apart = source != destination
    ends = destination[apart], source[apart]
    size = snapshot.num_nodes
    found = sp.coo_array((np.ones(ends[0].size, np.int32), ends), shape=(size, size)).tocsr()
    if snapshot.directed:
        found = (found + found.T).tocsr()
    found.sum_duplicates()
    found.data[:] = 1
    return found


def union(graph: DynamicGraph, nodes: IntArray) -> sp.csr_array:
    """In how many snapshots each pair of ``nodes`` has an edge, [n, n]; they must be all that are ever present."""
    from strobe.ops.pairs import Pairs, added, both_ways, no_pairs, pairs_of  # numba takes its time to load

    place = np.zeros(graph.num_nodes, np.int64)
    place[nodes] = np.arange(nodes.size)

    def over(first: int, last: int) -> Pairs:
        """Halves are added up: a pair is touched once per doubling of the time it lasts, not once per snapshot."""
        if last - first > 1:
            middle = (first + last) // 2
            return added(over(first, middle), over(middle, last))
        snapshot = graph[first]
        there = None if snapshot.has_all_nodes else place[snapshot.nodes]
        return pairs_of(snapshot.row_ptr, snapshot.col, directed=snapshot.directed, place=there)

    return both_ways(over(0, len(graph)) if len(graph) else no_pairs(), nodes.size)
