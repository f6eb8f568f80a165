"""Arcs of a window: the first snapshot, then deleted, inserted and reweighted arcs, as arc keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from strobe.graph.arrays import read_only
from strobe.graph.diff import KeyDiff, KeyedArcs, bits, diff_keys
from strobe.ops.sparse.csr import Csr, FloatArray, IntArray, expand_rows, index_dtype, row_pointers, transpose
from strobe.store.delta.base import CompactMask, DeltaWindow, merge_keys


@dataclass(frozen=True, eq=False)
class PackedKeys:
    """Ascending keys, destination * N + source: 8 bytes each, or in CSR (4 bytes per source, 8 per destination),
    whichever is smaller."""

    data: tuple[IntArray, ...]  # keys; or destinations, offsets, sources

    @classmethod
    def of(cls, keys: IntArray, num_nodes: int) -> PackedKeys:
        dst = keys // max(num_nodes, 1)
        first = np.flatnonzero(np.diff(dst, prepend=-1))
        dtype = np.dtype(index_dtype(max(num_nodes, keys.size)))
        if (2 * first.size + 1 + keys.size) * dtype.itemsize >= keys.nbytes:
            return cls((keys,))
        src = keys - dst * num_nodes
        return cls((dst[first].astype(dtype), np.append(first, keys.size).astype(dtype), src.astype(dtype)))

    def unpack(self, num_nodes: int) -> IntArray:
        if len(self.data) == 1:
            return self.data[0]
        destinations, offsets, sources = self.data
        keys = np.repeat(destinations.astype(np.int64) * num_nodes, np.diff(offsets))
        keys += sources
        return keys


@dataclass(frozen=True, eq=False)
class _ArcDelta:
    """Difference of a snapshot to the previous one; weights and ``reweighted`` are None in an unweighted graph."""

    t: int
    deleted: CompactMask  # over previous arcs
    inserted: PackedKeys
    weight: FloatArray | None  # of inserted arcs
    reweighted: CompactMask | None  # over current arcs
    new_weight: FloatArray | None  # of reweighted arcs


@dataclass(frozen=True)
class _Unchanged:
    """A snapshot with the arcs of the previous one."""

    t: int


class ArcWindow(DeltaWindow[tuple[int, PackedKeys, FloatArray | None], tuple[int, KeyedArcs], _ArcDelta | _Unchanged]):
    """Arcs of the snapshots of a window. The n-th of parallel edges is compared with the n-th.

    Cost of a later snapshot: one bit per previous arc or 4 bytes per deleted arc, 4 to 8 bytes and a weight per
    inserted arc, and a mask and a weight per reweighted arc; nothing if it has the arcs of the previous one.
    """

    def __init__(self, num_nodes: int) -> None:
        super().__init__()
        self._n = num_nodes

    def add(self, t: int, arcs: KeyedArcs, start_from: tuple[int, KeyedArcs] | None = None) -> None:
        """Add the next snapshot; ``start_from``: a later start for rebuilding the previous one."""
        keys, weight = arcs
        if self._first is None:
            own = None if weight is None else np.array(weight)
            self._first = t, PackedKeys.of(np.array(keys, np.int64), self._n), own
            return
        self._check_order(t)
        before = self.arcs_at(self.times[-1], start_from)
        diff = diff_keys(before.keys, keys)
        inserted = PackedKeys.of(keys[diff.new], self._n)
        reweighted, new_weight = _diff_weights(diff, before.weight, weight)
        of_inserted = None if weight is None else weight[diff.new]
        self._later.append(_ArcDelta(t, CompactMask.of(~diff.stay), inserted, of_inserted, reweighted, new_weight))

    def repeat(self, t: int) -> None:
        """Add the next snapshot, which has the arcs and weights of the previous one."""
        self._check_order(t)
        self._later.append(_Unchanged(t))

    def arcs_at(self, t: int, start_from: tuple[int, KeyedArcs] | None = None) -> KeyedArcs:
        """Arcs of snapshot t, rebuilt from the first or from ``start_from``, (snapshot, arcs) up to t."""
        (_, arcs), later = self._rebuild_path(t, start_from)
        for each in later:
            arcs = self._apply(arcs, each)
        return arcs

    def _materialize(self, t: int) -> tuple[int, PackedKeys, FloatArray | None]:
        keys, weight = self.arcs_at(t)
        return t, PackedKeys.of(keys, self._n), weight

    def _unpack_first(self) -> tuple[int, KeyedArcs]:
        assert self._first is not None
        t, keys, weight = self._first
        return t, KeyedArcs(keys.unpack(self._n), weight)

    def _apply(self, arcs: KeyedArcs, later: _ArcDelta | _Unchanged) -> KeyedArcs:
        if isinstance(later, _Unchanged):
            return arcs
        keys, diff = merge_keys(arcs.keys, later.deleted, later.inserted.unpack(self._n))
        if arcs.weight is None or later.weight is None or later.reweighted is None:
            return KeyedArcs(keys, None)
        weight = diff.apply(arcs.weight, later.weight)
        weight[later.reweighted.indices()] = later.new_weight
        return KeyedArcs(keys, weight)


def to_csr(arcs: KeyedArcs, nodes: IntArray, num_nodes: int, *, directed: bool) -> Csr:
    """Decode arcs to the rows of a snapshot with these nodes."""
    dst = arcs.keys // max(num_nodes, 1)
    src = arcs.keys - dst * num_nodes
    if len(nodes) < num_nodes:
        place = np.empty(num_nodes, np.int64)
        place[nodes] = np.arange(len(nodes))
        dst, src = place[dst], place[src]
    row_ptr = row_pointers(np.bincount(dst, minlength=len(nodes)))
    col: IntArray = src.astype(index_dtype(num_nodes))
    rows = (row_ptr, col, arcs.weight) if directed else _symmetrize(row_ptr, col, arcs.weight)
    return read_only(rows[0]), read_only(rows[1]), None if rows[2] is None else read_only(rows[2])


def _symmetrize(row_ptr: IntArray, col: IntArray, weight: FloatArray | None) -> Csr:
    """Symmetric matrix from its lower triangle: a row is the row of the triangle, then its column."""
    row = expand_rows(row_ptr)
    strict = col < row
    own_degree = np.diff(row_ptr)
    upper_ptr, upper_col, origin = transpose(
        row_pointers(np.bincount(row[strict], minlength=own_degree.size)), col[strict], own_degree.size
    )
    both = row_pointers(own_degree + np.diff(upper_ptr))
    joined = np.empty(int(both[-1]), col.dtype)
    lower_at = np.arange(col.size) + upper_ptr[row]
    upper_row = expand_rows(upper_ptr)
    upper_at = np.arange(upper_col.size) + row_ptr[upper_row + 1]
    joined[lower_at], joined[upper_at] = col, upper_col
    if weight is None:
        return both, joined, None
    of_both = np.empty(joined.size, weight.dtype)
    of_both[lower_at], of_both[upper_at] = weight, weight[strict][origin]
    return both, joined, of_both


def _diff_weights(
    diff: KeyDiff, before: FloatArray | None, now: FloatArray | None
) -> tuple[CompactMask | None, FloatArray | None]:
    """Remaining arcs with other weights, bitwise."""
    if before is None or now is None:
        return None, None
    other = np.zeros(now.size, np.bool_)
    other[~diff.new] = bits(before[diff.stay]) != bits(now[~diff.new])
    return CompactMask.of(other), now[other]
