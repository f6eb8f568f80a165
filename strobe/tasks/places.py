"""Where nodes of one snapshot stand in another."""

from __future__ import annotations

import numpy as np

from strobe.ops.csr import IntArray


def places(wanted: IntArray, nodes: IntArray) -> IntArray:
    """The position of each wanted node among nodes, -1 where it is not among them; nodes ascend."""
    if not len(nodes):
        return np.full(len(wanted), -1, np.int64)
    if len(wanted) == len(nodes) and np.array_equal(wanted, nodes):
        return np.arange(len(nodes), dtype=np.int64)
    at = np.minimum(np.searchsorted(nodes, wanted), len(nodes) - 1)
    return np.where(nodes[at] == wanted, at, -1)
