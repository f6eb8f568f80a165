"""Differences between consecutive snapshots: sorted keys (node ids, arc keys) and feature rows.

An arc is an int64 key, destination * N + source, so ascending keys are the rows of a snapshot in order. Of an
undirected edge only the arc to the higher end has a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strobe.graph.arrays import Array, read_only
from strobe.ops.runtime.njit import cached_njit
from strobe.ops.sparse.csr import Csr, FloatArray, IntArray, expand_rows

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class KeyDiff:
    """Difference of ascending keys, in which the n-th of equal keys matches the n-th."""

    stay: Mask  # over previous keys
    new: Mask  # over current keys

    @classmethod
    def all_new(cls, size: int) -> KeyDiff:
        """Difference to no keys."""
        return cls(np.zeros(0, np.bool_), np.ones(size, np.bool_))

    @property
    def is_empty(self) -> bool:
        """Whether the keys are unchanged."""
        return not self.new.any() and bool(self.stay.all())

    def apply(self, before: Array, inserted: Array) -> Array:
        """Values of the current keys, from previous values and those of inserted keys."""
        now: Array = np.empty((self.new.size, *before.shape[1:]), before.dtype)
        now[np.flatnonzero(~self.new)] = before[np.flatnonzero(self.stay)]  # indices are faster than masks
        now[np.flatnonzero(self.new)] = inserted
        return now

    def map_positions(self, after: IntArray) -> IntArray:
        """Map previous keys to the positions ``after`` of current keys; -1 for deleted ones."""
        positions = np.full(self.stay.size, -1, after.dtype)
        positions[np.flatnonzero(self.stay)] = after[np.flatnonzero(~self.new)]
        return positions


def diff_keys(before: IntArray, now: IntArray) -> KeyDiff:
    """Compare ascending keys."""
    stay, new = np.zeros(before.size, np.bool_), np.ones(now.size, np.bool_)
    _match_keys(read_only(before), read_only(now.astype(before.dtype, copy=False)), stay, new)
    return KeyDiff(stay, new)


def changed_segments(diff: KeyDiff, before: Array, now: Array, ends: list[int]) -> Mask:
    """Segments of rows whose bits changed, [S, n]; ``ends`` are their ends. New rows are compared with zeros."""
    changed = np.zeros((len(ends), len(now)), np.bool_)
    _mark_changed_segments(bits(before), bits(now), diff.stay, diff.new, np.array(ends, np.int64), changed)
    return changed


def bits(rows: Array) -> Array:
    """Rows as read-only unsigned integers: NaN equals itself, and 0 differs from -0."""
    return read_only(np.ascontiguousarray(rows).view(f"u{rows.itemsize}"))


class KeyedArcs(NamedTuple):
    """Ascending arc keys with optional weights."""

    keys: IntArray
    weight: FloatArray | None


def key_arcs(nodes: IntArray, csr: Csr, num_nodes: int, *, directed: bool) -> KeyedArcs:
    """Encode the arcs of a snapshot; of an undirected edge the arc to the higher end."""
    row_ptr, col, weight = csr
    lower = None if directed else col <= expand_rows(row_ptr)
    keys = np.empty(col.size if lower is None else np.count_nonzero(lower), np.int64)
    _fill_keys(read_only(nodes), read_only(row_ptr), read_only(col), num_nodes, directed, keys)
    return KeyedArcs(keys, weight if weight is None or lower is None else weight[lower])


@cached_njit
def _fill_keys(
    nodes: IntArray, row_ptr: IntArray, col: IntArray, num_nodes: int, directed: bool, keys: IntArray
) -> None:
    end = 0
    for row in range(len(nodes)):
        for arc in range(row_ptr[row], row_ptr[row + 1]):
            if directed or col[arc] <= row:
                keys[end] = nodes[row] * num_nodes + nodes[col[arc]]
                end += 1


@cached_njit
def _match_keys(before: IntArray, now: IntArray, stay: Mask, new: Mask) -> None:
    """Match ascending keys: set ``stay`` and clear ``new`` for keys in both; the n-th of equal keys matches the
    n-th."""
    old = 0
    for place in range(len(now)):
        while old < len(before) and before[old] < now[place]:
            old += 1
        if old < len(before) and before[old] == now[place]:
            stay[old] = True
            new[place] = False
            old += 1


@cached_njit
def _mark_changed_segments(before: Array, now: Array, stay: Mask, new: Mask, ends: IntArray, changed: Mask) -> None:
    """Mark changed segments, [S, n], and of new rows the nonzero ones; ``ends`` [S] are the ends of segments."""
    old = -1
    for row in range(len(now)):
        current = now[row]
        if not new[row]:
            old += 1
            while not stay[old]:
                old += 1
        begin = 0
        for segment in range(len(ends)):
            if new[row]:
                for column in range(begin, ends[segment]):
                    if current[column] != 0:
                        changed[segment, row] = True
                        break
            else:
                last = before[old]
                for column in range(begin, ends[segment]):
                    if current[column] != last[column]:
                        changed[segment, row] = True
                        break
            begin = ends[segment]
