"""Pairs of nodes with an edge, counted over snapshots.

A pair is one number, larger end first. Arcs of a snapshot come sorted, and lists of pairs are, so everything is one
pass over two of them: no sorting, and no matrix with both directions until the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from strobe.ops.compiled import compiled
from strobe.ops.csr import IntArray, fixed, index_dtype

Pairs = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]
"""Pairs, ascending, and how many snapshots have each."""

_END = 32
"""Bits of a pair's smaller end."""


def no_pairs() -> Pairs:
    """Those of no snapshots."""
    return np.empty(0, np.int64), np.empty(0, np.int32)


def pairs_of(row_ptr: IntArray, col: IntArray, *, directed: bool, place: IntArray | None = None) -> Pairs:
    """The pairs of a snapshot with arcs by rows, once however many edges join them, without self-loops. ``place`` has
    the number of each of its cells among the nodes of a graph, ascending; None: their own."""
    pairs = _below(fixed(row_ptr), fixed(col), directed)
    if place is not None:
        pairs = (place[pairs >> _END] << _END) | place[pairs & ((1 << _END) - 1)]
    return pairs, np.ones(len(pairs), np.int32)


def added(one: Pairs, other: Pairs) -> Pairs:
    """The pairs of both, with the sum of their counts."""
    pairs, count, size = _added(*one, *other)
    return pairs[:size], count[:size]  # the rest was never touched and takes no memory


def both_ways(pairs: Pairs, size: int) -> sp.csr_array:
    """The symmetric matrix of counts, [size, size], columns ascending in each row."""
    ptr, col, count = _mirrored(*pairs, size)
    return sp.csr_array((count, col, ptr.astype(index_dtype(len(col)))), shape=(size, size))


@compiled
def _below(row_ptr: Any, col: Any, directed: bool) -> Any:
    """An arc from the smaller to the larger end is in its place; those the other way are sorted by counting."""
    size = len(row_ptr) - 1
    at = np.zeros(size + 1, np.int64)
    if directed:
        for row in range(size):
            for j in range(row_ptr[row], row_ptr[row + 1]):
                if col[j] > row:
                    at[col[j] + 1] += 1
        for row in range(size):
            at[row + 1] += at[row]
    turned = np.empty(at[size], np.int64)
    found = np.empty(len(col) - len(turned), np.int64)
    num_found = 0
    for row in range(size):
        for j in range(row_ptr[row], row_ptr[row + 1]):
            other = np.int64(col[j])
            if other < row:
                found[num_found] = (row << _END) | other
                num_found += 1
            elif directed and other > row:
                turned[at[other]] = (other << _END) | row
                at[other] += 1
    return _once(found[:num_found], turned)


@compiled
def _once(one: Any, other: Any) -> Any:
    """Two sorted lists as one, without repetitions."""
    merged = np.empty(len(one) + len(other), np.int64)
    i, j, filled, last = 0, 0, 0, -1
    while i < len(one) and j < len(other):
        a, b = one[i], other[j]
        smaller = min(a, b)
        merged[filled] = smaller
        filled += smaller != last
        last = smaller
        i += a <= b
        j += b <= a
    for rest in (one[i:], other[j:]):
        for pair in rest:
            merged[filled] = pair
            filled += pair != last
            last = pair
    return merged[:filled]


@compiled
def _added(one: Any, of_one: Any, other: Any, of_other: Any) -> Any:
    pairs, count = np.empty(len(one) + len(other), np.int64), np.empty(len(one) + len(other), np.int32)
    i, j, filled = 0, 0, 0
    while i < len(one) and j < len(other):
        a, b = one[i], other[j]
        pairs[filled] = min(a, b)
        count[filled] = of_one[i] * (a <= b) + of_other[j] * (b <= a)
        i += a <= b
        j += b <= a
        filled += 1
    for rest, of_rest in ((one[i:], of_one[i:]), (other[j:], of_other[j:])):
        for k in range(len(rest)):
            pairs[filled], count[filled] = rest[k], of_rest[k]
            filled += 1
    return pairs, count, filled


@compiled
def _mirrored(pairs: Any, count: Any, size: int) -> Any:
    """A row's smaller ends are written when its turn comes, its larger ones later and in order."""
    first = np.zeros(size + 1, np.int64)
    for pair in pairs:
        first[(pair >> _END) + 1] += 1
        first[(pair & ((1 << _END) - 1)) + 1] += 1
    for row in range(size):
        first[row + 1] += first[row]
    at = first.copy()
    col, data = np.empty(2 * len(pairs), np.int32), np.empty(2 * len(pairs), np.int32)
    for k in range(len(pairs)):
        row, other = pairs[k] >> _END, pairs[k] & ((1 << _END) - 1)
        col[at[row]], data[at[row]] = other, count[k]
        col[at[other]], data[at[other]] = row, count[k]
        at[row] += 1
        at[other] += 1
    return first, col, data
