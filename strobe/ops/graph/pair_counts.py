"""Node pairs with an edge, counted over snapshots.

A pair is one integer, larger end first. Arcs and lists of pairs are sorted, so every operation is one merge pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from strobe.io.lazy_import import lazy_import
from strobe.ops.runtime.njit import cached_njit
from strobe.ops.sparse.csr import IntArray, index_dtype, readonly_view

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    sp = lazy_import("scipy.sparse")

PairCounts = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]
"""Ascending pairs and the number of snapshots that have each."""

_END = 32  # bits of the smaller end


def empty_pairs() -> PairCounts:
    """Counts of no snapshots."""
    return np.empty(0, np.int64), np.empty(0, np.int32)


def extract_pairs(row_ptr: IntArray, col: IntArray, *, directed: bool, place: IntArray | None = None) -> PairCounts:
    """Distinct pairs of a snapshot, without self-loops. ``place`` holds the ascending node ids of its cells (None:
    their positions)."""
    pairs = _lower_pairs(readonly_view(row_ptr), readonly_view(col), directed)
    if place is not None:
        pairs = (place[pairs >> _END] << _END) | place[pairs & ((1 << _END) - 1)]
    return pairs, np.ones(len(pairs), np.int32)


def add_pairs(one: PairCounts, other: PairCounts) -> PairCounts:
    """Merge pairs and add their counts."""
    pairs, count, size = _add_pairs(*one, *other)
    return pairs[:size], count[:size]  # untouched pages take no memory


def to_symmetric_csr(pairs: PairCounts, size: int) -> sp.csr_array:
    """Symmetric matrix of counts, [size, size], columns ascending in each row."""
    ptr, col, count = _mirror_pairs(*pairs, size)
    return sp.csr_array((count, col, ptr.astype(index_dtype(len(col)))), shape=(size, size))


@cached_njit
def _lower_pairs(row_ptr: Any, col: Any, directed: bool) -> Any:
    """Arcs to the larger end are in order; arcs to the smaller end are sorted by counting."""
    size = len(row_ptr) - 1
    at = np.zeros(size + 1, np.int64)
    if directed:
        for row in range(size):
            for j in range(row_ptr[row], row_ptr[row + 1]):
                if col[j] > row:
                    at[col[j] + 1] += 1
        for row in range(size):
            at[row + 1] += at[row]
    upper = np.empty(at[size], np.int64)
    lower = np.empty(len(col) - len(upper), np.int64)
    num_lower = 0
    for row in range(size):
        for j in range(row_ptr[row], row_ptr[row + 1]):
            other = np.int64(col[j])
            if other < row:
                lower[num_lower] = (row << _END) | other
                num_lower += 1
            elif directed and other > row:
                upper[at[other]] = (other << _END) | row
                at[other] += 1
    return _merge_unique(lower[:num_lower], upper)


@cached_njit
def _merge_unique(one: Any, other: Any) -> Any:
    """Merge two sorted lists, without duplicates."""
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


@cached_njit
def _add_pairs(one: Any, of_one: Any, other: Any, of_other: Any) -> Any:
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


@cached_njit
def _mirror_pairs(pairs: Any, count: Any, size: int) -> Any:
    """Fill both directions; columns come out ascending because pairs are sorted by the larger end."""
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
