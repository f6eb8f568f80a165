"""Churn: presence of nodes, and the edges and feature rows that adjacent snapshots share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from strobe.graph.arrays import Array
from strobe.graph.snapshot import Snapshot
from strobe.ops.sparse.csr import FloatArray, IntArray, index_dtype


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


CHUNK = 1 << 18


@dataclass(frozen=True, eq=False, kw_only=True)
class EdgeList:
    """Edges of a snapshot as ascending int64 keys over global ids, an undirected edge once.

    Equal keys are parallel edges. Cost: 8 bytes per edge, and a copy of the weights.
    """

    key: IntArray
    weight: FloatArray | None
    num_distinct: int
    num_self_loops: int
    num_isolated: int

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, num_nodes: int) -> EdgeList:
        key = np.empty(snapshot.num_edges, np.int64)
        weight = None if snapshot.weight is None else np.empty(snapshot.num_edges, snapshot.weight.dtype)
        touched = snapshot.in_degree > 0
        end = distinct = loops = 0
        for arcs, src, dst in _arc_chunks(snapshot):
            touched[src] = True
            loops += int(np.count_nonzero(src == dst))
            once = slice(None) if snapshot.directed else src <= dst
            part = snapshot.nodes[dst[once]].astype(np.int64) * num_nodes + snapshot.nodes[src[once]]
            key[end : end + part.size] = part
            if weight is not None and snapshot.weight is not None:
                weight[end : end + part.size] = snapshot.weight[arcs][once]
            distinct += _num_distinct(key, end, end + part.size)
            end += part.size
        assert end == key.size
        isolated = int(touched.size - np.count_nonzero(touched))
        return cls(key=key, weight=weight, num_distinct=distinct, num_self_loops=loops, num_isolated=isolated)


class EdgeMatch(NamedTuple):
    """Edges that a snapshot shares with the previous one.

    ``distinct`` counts (source, destination) pairs. ``kept`` counts edges, where the n-th of several parallel edges
    matches the n-th before; of those, ``reweighted`` have another weight now.
    """

    distinct: int
    kept: int
    reweighted: int


def match_edges(before: EdgeList, now: EdgeList) -> EdgeMatch:
    """Find every edge of ``now`` in ``before``: a binary search per edge in a range that fits the cache."""
    distinct = kept = reweighted = 0
    parallel = now.num_distinct < now.key.size
    for start in range(0, now.key.size, CHUNK):
        key = now.key[start : start + CHUNK]
        low, high = np.searchsorted(before.key, key[0]), np.searchsorted(before.key, key[-1], side="right")
        old = before.key[low:high]
        nth = _nth_of_equal(now.key, start, key) if parallel else np.zeros(1, np.int64)
        at = np.searchsorted(old, key) + nth
        matched = at < old.size
        matched[matched] = old[at[matched]] == key[matched]
        kept += int(np.count_nonzero(matched))
        distinct += int(np.count_nonzero(matched & (nth == 0)))
        if now.weight is not None and before.weight is not None:
            weight = now.weight[start : start + CHUNK][matched]
            reweighted += int(np.count_nonzero(before.weight[low:high][at[matched]] != weight))
    return EdgeMatch(distinct, kept, reweighted)


class CellRows(NamedTuple):
    """Nodes of a snapshot and the stored feature row of each."""

    nodes: IntArray
    rows: Array


def num_changed_rows(before: CellRows, now: CellRows) -> int:
    """Count rows of ``now`` whose node was absent before, or had a row with other bytes."""
    same = 0
    for start in range(0, now.nodes.size, CHUNK):
        nodes = now.nodes[start : start + CHUNK]
        at = np.searchsorted(before.nodes, nodes)
        present = at < before.nodes.size
        present[present] = before.nodes[at[present]] == nodes[present]
        old, new = before.rows[at[present]], now.rows[start : start + CHUNK][present]
        same += int(np.count_nonzero((_bits(old) == _bits(new)).all(axis=1)))
    return int(now.nodes.size) - same


def _arc_chunks(snapshot: Snapshot) -> Iterator[tuple[slice, IntArray, IntArray]]:
    """Return (arcs, their sources, their destinations) as positions in the snapshot's nodes."""
    row_ptr = snapshot.row_ptr
    for start in range(0, snapshot.num_arcs, CHUNK):
        stop = min(start + CHUNK, snapshot.num_arcs)
        # a Python int would make searchsorted copy all row pointers to int64
        first = int(np.searchsorted(row_ptr, row_ptr.dtype.type(start), side="right")) - 1
        last = int(np.searchsorted(row_ptr, row_ptr.dtype.type(stop)))
        offsets = np.clip(row_ptr[first : last + 1], start, stop)
        rows: IntArray = np.arange(first, last).astype(index_dtype(last))
        dst = np.repeat(rows, offsets[1:] - offsets[:-1])
        yield slice(start, stop), snapshot.col[start:stop], dst


def _num_distinct(key: IntArray, start: int, stop: int) -> int:
    """Count keys in [start, stop) that differ from the key before them."""
    if start == stop:
        return 0
    first = start == 0
    return int(np.count_nonzero(key[max(start, 1) : stop] != key[max(start - 1, 0) : stop - 1])) + first


def _nth_of_equal(all_keys: IntArray, start: int, key: IntArray) -> IntArray:
    """Return how many equal keys precede each of these; ``key`` begins at ``start`` of all."""
    position = np.arange(start, start + key.size)
    new = np.concatenate(([True], key[1:] != key[:-1]))
    group_start = np.where(new, position, 0)
    group_start[0] = np.searchsorted(all_keys, key[0])
    return position - np.maximum.accumulate(group_start)


def _bits(rows: Array) -> Array:
    """View rows as unsigned integers, so that equality is bitwise and NaN equals itself."""
    flat = np.ascontiguousarray(rows).reshape(len(rows), math.prod(rows.shape[1:]))
    return flat.view(f"u{flat.dtype.itemsize}")
