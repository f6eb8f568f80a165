"""What differs between a snapshot and the one before: sorted keys are matched, nothing is hashed.

Work goes over arcs and rows a chunk at a time, so that beside the keys (8 bytes an edge) memory stays constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from strobe.graph.features import Array
from strobe.graph.snapshot import Snapshot
from strobe.ops.csr import FloatArray, IntArray, index_dtype

CHUNK = 1 << 18


@dataclass(frozen=True, eq=False, kw_only=True)
class EdgeList:
    """A snapshot's edges as ascending int64 keys over global ids, an undirected edge once.

    Equal keys are parallel edges. Cost: 8 bytes an edge, and a copy of the weights.
    """

    key: IntArray
    weight: FloatArray | None
    num_distinct: int
    num_self_loops: int
    num_isolated: int

    @classmethod
    def of(cls, snapshot: Snapshot, num_nodes: int) -> EdgeList:
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
            distinct += _num_new(key, end, end + part.size)
            end += part.size
        assert end == key.size
        isolated = int(touched.size - np.count_nonzero(touched))
        return cls(key=key, weight=weight, num_distinct=distinct, num_self_loops=loops, num_isolated=isolated)


class EdgeMatch(NamedTuple):
    """Edges of a snapshot that the one before has too.

    ``distinct`` counts (source, destination) pairs. ``kept`` counts edges, where the n-th of some parallel
    edges is matched with the n-th of before; of those, ``reweighted`` have another weight now.
    """

    distinct: int
    kept: int
    reweighted: int


def match_edges(before: EdgeList, now: EdgeList) -> EdgeMatch:
    """Finds every edge of ``now`` in ``before``: a binary search per edge in a range that fits the cache."""
    distinct = kept = reweighted = 0
    parallel = now.num_distinct < now.key.size
    for start in range(0, now.key.size, CHUNK):
        key = now.key[start : start + CHUNK]
        low, high = np.searchsorted(before.key, key[0]), np.searchsorted(before.key, key[-1], side="right")
        old = before.key[low:high]
        nth = _nth_of_equal(now.key, start, key) if parallel else np.zeros(1, np.int64)
        at = np.searchsorted(old, key) + nth
        found = at < old.size
        found[found] = old[at[found]] == key[found]
        kept += int(np.count_nonzero(found))
        distinct += int(np.count_nonzero(found & (nth == 0)))
        if now.weight is not None and before.weight is not None:
            weight = now.weight[start : start + CHUNK][found]
            reweighted += int(np.count_nonzero(before.weight[low:high][at[found]] != weight))
    return EdgeMatch(distinct, kept, reweighted)


class CellRows(NamedTuple):
    """The nodes of a snapshot and the stored feature row of each."""

    nodes: IntArray
    rows: Array


def num_changed_rows(before: CellRows, now: CellRows) -> int:
    """Rows of ``now`` whose node was absent before, or had a row with other bytes."""
    same = 0
    for start in range(0, now.nodes.size, CHUNK):
        nodes = now.nodes[start : start + CHUNK]
        at = np.searchsorted(before.nodes, nodes)
        found = at < before.nodes.size
        found[found] = before.nodes[at[found]] == nodes[found]
        old, new = before.rows[at[found]], now.rows[start : start + CHUNK][found]
        same += int(np.count_nonzero((_bits(old) == _bits(new)).all(axis=1)))
    return int(now.nodes.size) - same


def _arc_chunks(snapshot: Snapshot) -> Iterator[tuple[slice, IntArray, IntArray]]:
    """(which arcs, their sources, their destinations), as positions in the snapshot's nodes."""
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


def _num_new(key: IntArray, start: int, stop: int) -> int:
    """Keys in [start, stop) that differ from the key before them."""
    if start == stop:
        return 0
    first = start == 0
    return int(np.count_nonzero(key[max(start, 1) : stop] != key[max(start - 1, 0) : stop - 1])) + first


def _nth_of_equal(all_keys: IntArray, start: int, key: IntArray) -> IntArray:
    """How many keys equal to each of these stand before it; ``key`` begins at ``start`` of all."""
    position = np.arange(start, start + key.size)
    new = np.concatenate(([True], key[1:] != key[:-1]))
    group_start = np.where(new, position, 0)
    group_start[0] = np.searchsorted(all_keys, key[0])
    return position - np.maximum.accumulate(group_start)


def _bits(rows: Array) -> Array:
    """Rows as unsigned integers: NaN equals itself, and what is equal is equal to the bit."""
    flat = np.ascontiguousarray(rows).reshape(len(rows), math.prod(rows.shape[1:]))
    return flat.view(f"u{flat.dtype.itemsize}")
