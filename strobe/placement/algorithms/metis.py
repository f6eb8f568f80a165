"""Graph partitioning with METIS: adjacency of snapshots, parts of even load, relabelling, node chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from strobe.errors import MissingPackageError
from strobe.graph import DynamicGraph, Snapshot
from strobe.io.lazy_import import lazy_import
from strobe.ops.graph.pair_counts import PairCounts, add_pairs, empty_pairs, extract_pairs, to_symmetric_csr
from strobe.ops.sparse.csr import IntArray, distinct

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    sp = lazy_import("scipy.sparse")


def snapshot_adjacency(snapshot: Snapshot) -> sp.csr_array:
    """Symmetric 0/1 adjacency of the cells of a snapshot, [n, n], without self-loops."""
    source, destination = snapshot.arcs()
    no_loop = source != destination
    ends = destination[no_loop], source[no_loop]
    size = snapshot.num_nodes
    adjacency = sp.coo_array((np.ones(ends[0].size, np.int32), ends), shape=(size, size)).tocsr()
    if snapshot.directed:
        adjacency = (adjacency + adjacency.T).tocsr()
    adjacency.sum_duplicates()
    adjacency.data[:] = 1
    return adjacency


def union_adjacency(graph: DynamicGraph, nodes: IntArray) -> sp.csr_array:
    """Number of snapshots in which each pair of ``nodes`` has an edge, [n, n]; ``nodes`` are all that are ever
    present."""
    place = np.zeros(graph.num_nodes, np.int64)
    place[nodes] = np.arange(nodes.size)

    def over(first: int, last: int) -> PairCounts:
        """Add halves recursively: a pair is merged O(log T) times, not once per snapshot."""
        if last - first > 1:
            middle = (first + last) // 2
            return add_pairs(over(first, middle), over(middle, last))
        snapshot = graph[first]
        present = None if snapshot.has_all_nodes else place[snapshot.nodes]
        return extract_pairs(snapshot.row_ptr, snapshot.col, directed=snapshot.directed, place=present)

    return to_symmetric_csr(over(0, len(graph)) if len(graph) else empty_pairs(), nodes.size)


_LARGEST_SUM = 1 << 30  # METIS adds weights in 32 bits


def part_graph(adjacency: sp.csr_array, loads: IntArray, num_parts: int, seed: int = 0) -> IntArray:
    """Part of every vertex, [n], with similar loads; parts may be empty.

    By recursive bisection, which on graphs with hubs cuts fewer edges in less time than METIS's k-way method.
    """
    pymetis = _import_pymetis()
    if loads.size <= num_parts or num_parts == 1:
        return np.arange(loads.size) % num_parts
    result = pymetis.part_graph(
        num_parts,
        pymetis.CSRAdjacency(adjacency.indptr, adjacency.indices),
        vweights=_scale_weights(_cap_loads(loads, num_parts)),
        eweights=_scale_weights(adjacency.data),
        recursive=True,
        options=pymetis.Options(seed=seed % _LARGEST_SUM),
    )
    return np.asarray(result.vertex_part, np.int64)


def bisect_graph(adjacency: sp.csr_array, loads: IntArray, share: float, seed: int = 0) -> list[IntArray]:
    """Bisections, [n] each, in which part 0 has about this share of the load, 0 < share < 1.

    One by each method of METIS: with hubs either may cut twice as many edges as the other.
    """
    pymetis = _import_pymetis()
    largest = max(int(loads.sum() * max(share, 1 - share)), 1)
    halves: list[IntArray] = []
    for recursive, shares, zero in ((True, [share, 1 - share], 0), (False, [1 - share, share], 1)):
        cut = pymetis.part_graph(
            2,
            pymetis.CSRAdjacency(adjacency.indptr, adjacency.indices),
            vweights=_scale_weights(np.minimum(loads, largest)),
            eweights=_scale_weights(adjacency.data),
            tpwgts=shares,
            recursive=recursive,
            options=pymetis.Options(seed=seed % _LARGEST_SUM),
        )
        halves.append(np.asarray(cut.vertex_part, np.int64) ^ zero)
    return halves


def _import_pymetis() -> Any:
    try:
        import pymetis
    except ImportError as error:
        raise MissingPackageError("pymetis", "placing nodes with METIS") from error
    return pymetis


def _cap_loads(loads: IntArray, num_parts: int) -> IntArray:
    """Cap loads at an even share: a node that fills a part gets its own, and the other parts share the rest evenly.

    METIS prints warnings for halves without nodes otherwise.
    """
    heaviest = np.sort(loads)[::-1]
    alone = np.arange(num_parts)  # number of heaviest nodes with a part of their own
    rest = heaviest.sum() - np.concatenate(([0], np.cumsum(heaviest)))[:num_parts]
    share = rest // (num_parts - alone)
    enough = int(np.argmax(heaviest[:num_parts] <= share))
    capped: IntArray = np.minimum(loads, max(int(share[enough]), 1))
    return capped


def _scale_weights(weights: IntArray) -> IntArray:
    """Scale weights to at least 1 each with a sum that METIS can hold."""
    excess = int(weights.sum(dtype=np.int64)) // _LARGEST_SUM
    small: IntArray = np.maximum(weights >> excess.bit_length(), 1).astype(np.int32)
    return small


def relabel_to_match(part: IntArray, last: IntArray, num_parts: int) -> IntArray:
    """Relabel parts, [n], so that the most nodes keep their ``last`` part (-1: none)."""
    from scipy.optimize import linear_sum_assignment  # takes a quarter of a second to load

    known = last >= 0
    pair = part[known].astype(np.int64) * num_parts + last[known]
    overlap = np.bincount(pair, minlength=num_parts * num_parts).reshape(num_parts, num_parts)
    label: IntArray = linear_sum_assignment(overlap, maximize=True)[1]
    return label[part]


def chunk_nodes(adjacency: sp.csr_array, loads: IntArray, node_owner: IntArray, chunks: int, seed: int = 0) -> IntArray:
    """Chunk of every node, [n]: non-empty chunks of even load with few edges between them, numbered rank by rank.

    Args:
        adjacency: symmetric, without self-loops.
        loads: load of each node.
        node_owner: rank of each node.
        chunks: chunks per rank; a rank with fewer nodes has one chunk per node.
        seed: seed of METIS.
    """
    chunk = np.empty(node_owner.size, np.int64)
    for rank in distinct(node_owner):
        nodes = np.flatnonzero(node_owner == rank)
        inside = adjacency if nodes.size == node_owner.size else adjacency[nodes][:, nodes].tocsr()
        chunk[nodes] = rank * chunks + part_graph(inside, loads[nodes], chunks, seed)
    return _renumber(chunk)


def assign_absent_nodes(chunk: IntArray, present: IntArray, num_nodes: int) -> IntArray:
    """Chunk of all nodes, [N], from the chunks of nodes that are ever present; others are assigned round robin."""
    of_all = np.empty(num_nodes, np.int32)
    of_all[present] = chunk
    absent = np.ones(num_nodes, bool)
    absent[present] = False
    num_chunks = int(chunk.max(initial=0)) + 1
    of_all[absent] = np.arange(num_nodes - present.size) % num_chunks
    return of_all


def _renumber(chunk: IntArray) -> IntArray:
    """Renumber chunks without gaps, preserving their order."""
    used = np.zeros(int(chunk.max(initial=-1)) + 1, np.int64)
    used[chunk] = 1
    return (np.cumsum(used) - 1)[chunk]
