"""Who is ever linked with whom: the snapshots as graphs that partitioners read."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.csr import IntArray, row_pointers


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
    place = np.zeros(graph.num_nodes, np.int64)
    place[nodes] = np.arange(nodes.size)

    def over(first: int, last: int) -> sp.csr_array:
        """Halves are added up: a pair is touched once per doubling of the time it lasts, not once per snapshot."""
        if last - first > 1:
            middle = (first + last) // 2
            return over(first, middle) + over(middle, last)
        return _among(links(graph[first]), place[graph[first].nodes], nodes.size)

    return over(0, len(graph)) if len(graph) else sp.csr_array((nodes.size, nodes.size), dtype=np.int32)


def _among(small: sp.csr_array, place: IntArray, size: int) -> sp.csr_array:
    """The same links between the rows ``place``, ascending, of a larger matrix."""
    degree = np.zeros(size, np.int64)
    degree[place] = np.diff(small.indptr)
    column = place.astype(small.indices.dtype)[small.indices]
    return sp.csr_array((small.data, column, row_pointers(degree)), shape=(size, size))
