"""Pairs of nodes as sorted int64 keys: edges, past edges, and negatives.

The key of a pair (s, d) of n cells is ``s * n + d``; of nodes, whose number may grow, ``s * MAX_NODES + d``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strobe.graph import Snapshot
from strobe.ops.sparse.csr import IntArray, expand_rows, row_pointers
from strobe.tasks.positions import find_positions

Keys = npt.NDArray[np.int64]

MAX_NODES = 3_000_000_000
"""The largest number of nodes for which keys of pairs are distinct."""


@dataclass(frozen=True)
class TargetEdges:
    """Edges of a later snapshot as pairs of cells of an earlier one, without self-loops and parallel edges.

    ``arcs`` are ascending keys over the cells of the earlier snapshot, with both directions of an undirected edge.
    ``edges`` are the positives: an undirected edge once, smaller end first. ``num_absent_ends`` counts edges with
    an end that the earlier snapshot lacks.
    """

    num_cells: int
    arcs: Keys
    edges: Keys
    num_absent_ends: int

    @classmethod
    def from_snapshots(cls, read: Snapshot, target: Snapshot) -> TargetEdges:
        row_ptr, col, _ = target.transposed
        src, dst = _unique_arcs(expand_rows(row_ptr), col)
        position = find_positions(target.nodes, read.nodes)
        s, d = position[src], position[dst]
        both = (s >= 0) & (d >= 0)
        num_absent = int((~both).sum())
        s, d = s[both], d[both]
        n = read.num_nodes
        arcs = s * n + d
        if target.directed:
            return cls(n, arcs, arcs, num_absent)
        return cls(n, arcs, arcs[s < d], num_absent // 2)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return int(self.arcs.nbytes) if self.edges is self.arcs else int(self.arcs.nbytes + self.edges.nbytes)

    def ends(self, keys: Keys) -> tuple[Keys, Keys]:
        """Sources and destinations of keys, as positions."""
        if not self.num_cells:
            return keys, keys
        src, dst = np.divmod(keys, self.num_cells)
        return src, dst

    def sample_negatives(self, src: Keys, count: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.bool_], Keys]:
        """Sample ``count`` uniform non-successors of each source, without rejection: the r-th is r plus the successors
        before it, found by binary search. Samples are independent, so a node may come twice.

        Returns:
            Whether each source has a non-successor, and the samples of those that have, [sources, count].
        """
        n, arcs = self.num_cells, self.arcs
        row = arcs // max(n, 1)
        row_ptr = row_pointers(np.bincount(row, minlength=n)).astype(np.int64)
        free = n - 1 - np.diff(row_ptr)[src]
        has = free > 0
        src, free = src[has], free[has]
        first = row_ptr[src][:, None]
        r = rng.integers(0, free[:, None], (len(src), count))
        # Skip the source itself, which is no successor.
        r += r >= src[:, None] - (np.searchsorted(arcs, src * (n + 1))[:, None] - first)
        # A successor's key less the successors before it: its row, and the non-successors before it.
        non_successors_before = arcs - (np.arange(len(arcs)) - row_ptr[row])
        successors_before = np.searchsorted(non_successors_before, src[:, None] * n + r, side="right") - first
        return has, r + successors_before


def edge_keys(snapshot: Snapshot) -> Keys:
    """Ascending unique keys of a snapshot's edges over global ids; undirected edges smaller end first."""
    row_ptr, col, _ = snapshot.transposed
    src, dst = _unique_arcs(expand_rows(row_ptr), col)
    if not snapshot.directed:
        src, dst = src[src < dst], dst[src < dst]
    return snapshot.nodes[src].astype(np.int64) * MAX_NODES + snapshot.nodes[dst]


def pair_keys(src: IntArray, dst: IntArray, directed: bool) -> Keys:
    """Keys of pairs of global ids, to look up among ``edge_keys``."""
    if not directed:
        src, dst = np.minimum(src, dst), np.maximum(src, dst)
    return src.astype(np.int64) * MAX_NODES + dst


def contains(keys: Keys, wanted: Keys) -> npt.NDArray[np.bool_]:
    """Which ``wanted`` are in ``keys``, which ascend."""
    return find_positions(wanted, keys) >= 0


def merge_keys(keys: Keys, more: Keys) -> Keys:
    """The union of two ascending lists of unique keys, ascending."""
    new = more[~contains(keys, more)]
    # A stable sort merges two ascending runs in one pass.
    return np.sort(np.concatenate([keys, new]), kind="stable") if len(new) else keys


def _unique_arcs(src: IntArray, dst: IntArray) -> tuple[IntArray, IntArray]:
    """Sorted arcs without self-loops and duplicates."""
    keep = src != dst
    keep[1:] &= (src[1:] != src[:-1]) | (dst[1:] != dst[:-1])
    return src[keep], dst[keep]
