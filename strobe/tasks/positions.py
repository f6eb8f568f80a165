"""Positions of nodes in another snapshot."""

from __future__ import annotations

import numpy as np

from strobe.ops import native
from strobe.ops.graph.degrees import has_kernel
from strobe.ops.sparse.csr import IntArray


def find_positions(queries: IntArray, nodes: IntArray) -> IntArray:
    """The position of each query in ``nodes``, which ascend; -1 if it is absent. Ascending queries are fastest."""
    if not len(nodes):
        return np.full(len(queries), -1, np.int64)
    if len(queries) == len(nodes) and np.array_equal(queries, nodes):
        return np.arange(len(nodes), dtype=np.int64)
    if queries.ndim == 1 and has_kernel(queries, nodes):
        at = np.empty(len(queries), np.int64)
        native.run_base("find_positions", nodes, len(queries), len(nodes), queries, nodes, at)
        return at
    at = np.minimum(np.searchsorted(nodes, queries), len(nodes) - 1)
    return np.where(nodes[at] == queries, at, -1)
