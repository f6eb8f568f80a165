"""The nodes of every rank in chunks that stay the same for all time."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from strobe.ops.csr import IntArray, distinct
from strobe.placement.partition import partition


def chunked(among: sp.csr_array, loads: IntArray, of_node: IntArray, chunks: int, seed: int = 0) -> IntArray:
    """The chunk of every node, [n]: about ``chunks`` on each rank, of even load, with few links between them, none
    without a node. Numbered from 0, rank by rank.

    Args:
        among: the links of the nodes, symmetric and without self-loops.
        loads: what each node costs.
        of_node: the rank of each.
        chunks: of each rank; a rank with fewer nodes has one for each.
        seed: of METIS.
    """
    chunk = np.empty(of_node.size, np.int64)
    for rank in distinct(of_node):
        here = np.flatnonzero(of_node == rank)
        inside = among if here.size == of_node.size else among[here][:, here].tocsr()
        chunk[here] = rank * chunks + partition(inside, loads[here], chunks, seed)
    return _numbered(chunk)


def dealt(chunk: IntArray, there: IntArray, num_nodes: int) -> IntArray:
    """The chunk of all nodes, [N], from that of those that are ever present: the others, which cost nothing, are dealt
    to all chunks in turn, so that some of the chunks have a fair share of them, too."""
    of_all = np.empty(num_nodes, np.int32)
    of_all[there] = chunk
    absent = np.ones(num_nodes, bool)
    absent[there] = False
    num_chunks = int(chunk.max(initial=0)) + 1
    of_all[absent] = np.arange(num_nodes - there.size) % num_chunks
    return of_all


def _numbered(chunk: IntArray) -> IntArray:
    """The same numbers in the same order, but none left out."""
    used = np.zeros(int(chunk.max(initial=-1)) + 1, np.int64)
    used[chunk] = 1
    return (np.cumsum(used) - 1)[chunk]
