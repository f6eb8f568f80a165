"""Churn: presence of nodes, and the edges and feature rows that adjacent snapshots share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from strobe.graph.arrays import Array
from strobe.graph.diff import KeyedArcs, Mask, changed_segments, diff_keys, key_arcs
from strobe.graph.snapshot import Snapshot
from strobe.ops.sparse.csr import IntArray, expand_rows


@dataclass(frozen=True, kw_only=True)
class SequenceStats:
    """Cells per node. ``counts[k]`` nodes have k cells, k = 0..T; means are over nodes that ever appear."""

    mean: float
    median: int
    max: int
    counts: tuple[int, ...]
    num_never_present: int
    num_always_present: int
    num_nodes_with_gaps: int  # nodes that left and returned at least once
    num_gaps: int


class Turnover(NamedTuple):
    """Nodes that changed between a snapshot and the previous one."""

    arrivals: int  # never present before
    departures: int  # present in the previous snapshot, absent now
    returns: int  # present before, but not in the previous snapshot


class SequenceCounter:
    """Track the presence of N nodes through time: 9 bytes per node."""

    def __init__(self, num_nodes: int) -> None:
        self._length = np.zeros(num_nodes, np.int32)
        self._last = np.full(num_nodes, -1, np.int32)
        self._returned = np.zeros(num_nodes, np.bool_)
        self._t, self._present, self._gaps = 0, 0, 0

    def add(self, nodes: IntArray) -> Turnover:
        """Add the next snapshot's nodes. In the first one, all are arrivals."""
        last = self._last[nodes]
        arrivals = int(np.count_nonzero(last == -1))
        stayed = int(np.count_nonzero(last == self._t - 1)) if self._t else 0
        back = nodes[(last != -1) & (last != self._t - 1)]
        turnover = Turnover(arrivals, self._present - stayed, int(back.size))
        self._length[nodes] += 1
        self._last[nodes] = self._t
        self._returned[back] = True
        self._t, self._present, self._gaps = self._t + 1, int(nodes.size), self._gaps + int(back.size)
        return turnover

    def finish(self) -> SequenceStats:
        counts = np.bincount(self._length, minlength=self._t + 1)
        lengths, nodes = np.arange(1, counts.size), counts[1:]
        seen = np.cumsum(nodes)
        ever = int(seen[-1]) if seen.size else 0
        return SequenceStats(
            mean=float((lengths * nodes).sum() / ever) if ever else 0.0,
            median=int(lengths[np.searchsorted(seen, (ever + 1) // 2)]) if ever else 0,
            max=int(np.flatnonzero(counts)[-1]) if ever else 0,
            counts=tuple(counts.tolist()),
            num_never_present=int(counts[0]),
            num_always_present=int(counts[-1]) if self._t else 0,
            num_nodes_with_gaps=int(np.count_nonzero(self._returned)),
            num_gaps=self._gaps,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class EdgeList:
    """Edges of a snapshot as ascending arc keys over global ids, an undirected edge once.

    Equal keys are parallel edges. Cost: 9 bytes per edge, and the weights.
    """

    arcs: KeyedArcs
    is_first: Mask  # of the edges with equal keys
    num_self_loops: int
    num_isolated: int

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, num_nodes: int) -> EdgeList:
        csr = snapshot.row_ptr, snapshot.col, snapshot.weight
        arcs = key_arcs(snapshot.nodes, csr, num_nodes, directed=snapshot.directed)
        is_first = np.ones(arcs.keys.size, np.bool_)
        np.not_equal(arcs.keys[1:], arcs.keys[:-1], out=is_first[1:])
        touched = snapshot.in_degree > 0
        touched[snapshot.col] = True
        return cls(
            arcs=arcs,
            is_first=is_first,
            num_self_loops=int(np.count_nonzero(snapshot.col == expand_rows(snapshot.row_ptr))),
            num_isolated=int(touched.size - np.count_nonzero(touched)),
        )

    @cached_property
    def num_distinct(self) -> int:
        """Number of (source, destination) pairs."""
        return int(np.count_nonzero(self.is_first))


class EdgeMatch(NamedTuple):
    """Edges that a snapshot shares with the previous one.

    ``distinct`` counts (source, destination) pairs. ``kept`` counts edges, where the n-th of several parallel edges
    matches the n-th before; of those, ``reweighted`` have another weight now.
    """

    distinct: int
    kept: int
    reweighted: int


def match_edges(before: EdgeList, now: EdgeList) -> EdgeMatch:
    """Find every edge of ``now`` in ``before``."""
    diff = diff_keys(before.arcs.keys, now.arcs.keys)
    kept, reweighted = ~diff.new, 0
    if before.arcs.weight is not None and now.arcs.weight is not None:
        reweighted = int(np.count_nonzero(before.arcs.weight[diff.stay] != now.arcs.weight[kept]))
    return EdgeMatch(int(np.count_nonzero(kept & now.is_first)), int(np.count_nonzero(kept)), reweighted)


NodeRows = tuple[IntArray, Array]
"""Nodes of a snapshot and the stored feature row of each."""


def num_changed_rows(before: NodeRows, now: NodeRows) -> int:
    """Count rows of ``now`` whose node was absent before, or had a row with other bytes."""
    diff = diff_keys(before[0], now[0])
    (changed,) = changed_segments(diff, before[1], now[1], [now[1].shape[1]])
    return int(np.count_nonzero(changed | diff.new))
