"""Pairs of nodes as sorted keys: which are edges, which were edges before, and which could stand in for one.

A pair (s, d) of n cells is one int64 key, ``s * n + d``; one of nodes, whose number may grow, ``s * MOST_NODES + d``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strobe.graph import Snapshot
from strobe.ops.csr import IntArray, expand_rows, row_pointers
from strobe.tasks.places import places

Keys = npt.NDArray[np.int64]

MOST_NODES = 3_000_000_000
"""As many as there can be for pairs to be told apart."""


@dataclass(frozen=True)
class Future:
    """Edges of a later snapshot as pairs of an earlier one's cells: without self-loops, parallel ones once.

    ``arcs`` are keys over the n cells of the earlier one, ascending; an undirected edge stands there both ways.
    ``edges`` are the keys that are asked about: an undirected one once, smaller end first. ``lost`` counts the
    edges that cannot be, because an end is not there yet.
    """

    num_cells: int
    arcs: Keys
    edges: Keys
    lost: int

    @classmethod
    def of(cls, read: Snapshot, aim: Snapshot) -> Future:
        row_ptr, col, _ = aim.transposed
        src, dst = _once(expand_rows(row_ptr), col)
        place = places(aim.nodes, read.nodes)
        s, d = place[src], place[dst]
        both = (s >= 0) & (d >= 0)
        lost = int((~both).sum())
        s, d = s[both], d[both]
        n = read.num_nodes
        arcs = s * n + d
        if aim.directed:
            return cls(n, arcs, arcs, lost)
        return cls(n, arcs, arcs[s < d], lost // 2)

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        return int(self.arcs.nbytes) if self.edges is self.arcs else int(self.arcs.nbytes + self.edges.nbytes)

    def ends(self, keys: Keys) -> tuple[Keys, Keys]:
        """Sources and destinations of keys, as positions."""
        if not self.num_cells:
            return keys, keys
        src, dst = np.divmod(keys, self.num_cells)
        return src, dst

    def draw_others(self, src: Keys, count: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.bool_], Keys]:
        """For each source ``count`` nodes that are neither itself nor one it will have an edge to, uniformly.

        Exact and without trial and error: of a source with k successors the r-th other node is r plus the successors
        that stand before it, found by one search. Draws are independent, so one node may come twice. A source with
        an edge to everybody has none: its flag is False and it has no row in the result [flags set, count].
        """
        n, arcs = self.num_cells, self.arcs
        row = arcs // max(n, 1)
        row_ptr = row_pointers(np.bincount(row, minlength=n)).astype(np.int64)
        free = n - 1 - np.diff(row_ptr)[src]
        has = free > 0
        src, free = src[has], free[has]
        first = row_ptr[src][:, None]
        r = rng.integers(0, free[:, None], (len(src), count))
        # The source is itself no successor: it is passed over. Before it stand as many others as it has no edge to.
        r += r >= src[:, None] - (np.searchsorted(arcs, src * (n + 1))[:, None] - first)
        # A successor's key less the successors before it: its row, and how many others stand before it.
        others_before = arcs - (np.arange(len(arcs)) - row_ptr[row])
        successors_before = np.searchsorted(others_before, src[:, None] * n + r, side="right") - first
        return has, r + successors_before


def edge_keys(snapshot: Snapshot) -> Keys:
    """Keys of a snapshot's edges over global ids, ascending, each once; an undirected one smaller end first."""
    row_ptr, col, _ = snapshot.transposed
    src, dst = _once(expand_rows(row_ptr), col)
    if not snapshot.directed:
        src, dst = src[src < dst], dst[src < dst]
    return snapshot.nodes[src].astype(np.int64) * MOST_NODES + snapshot.nodes[dst]


def pair_keys(src: IntArray, dst: IntArray, directed: bool) -> Keys:
    """Keys of pairs of global ids, to look up among ``edge_keys``."""
    if not directed:
        src, dst = np.minimum(src, dst), np.maximum(src, dst)
    return src.astype(np.int64) * MOST_NODES + dst


def contains(keys: Keys, wanted: Keys) -> npt.NDArray[np.bool_]:
    """Which wanted keys are among the ascending ones."""
    return places(wanted, keys) >= 0


def merged(keys: Keys, more: Keys) -> Keys:
    """Both lists as one, ascending, each key once; both ascend."""
    new = more[~contains(keys, more)]
    # Two ascending runs: a stable sort merges them in one pass.
    return np.sort(np.concatenate([keys, new]), kind="stable") if len(new) else keys


def _once(src: IntArray, dst: IntArray) -> tuple[IntArray, IntArray]:
    """Arcs in order, without self-loops and without repeats."""
    keep = src != dst
    keep[1:] &= (src[1:] != src[:-1]) | (dst[1:] != dst[:-1])
    return src[keep], dst[keep]
