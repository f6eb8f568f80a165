"""Compressed sparse rows from unordered edges: sorting, coalescing and transposing.

An edge (destination d, source s) of n nodes is one int64 key, ``d * n + s``: keys sort by destination, then source, and
equal keys are parallel edges.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from strobe.io.lazy_import import lazy_import

if TYPE_CHECKING:
    import scipy.sparse as sp
else:
    sp = lazy_import("scipy.sparse")

IntArray = npt.NDArray[np.integer[Any]]
FloatArray = npt.NDArray[np.floating[Any]]
Parallel = Literal["keep", "count", "sum", "last"]

Csr = tuple[IntArray, IntArray, FloatArray | None]
"""Row pointers, columns (ascending in each row unless stated otherwise), weights (None: all are 1)."""

MAX_NODES = math.isqrt(np.iinfo(np.int64).max)
"""Largest number of nodes for which edge keys fit into int64, about 3 billion."""

_INT32_MAX = np.iinfo(np.int32).max


def index_dtype(largest: int) -> type[np.int32] | type[np.int64]:
    """int32 where ``largest`` fits, else int64."""
    return np.int32 if largest <= _INT32_MAX else np.int64


def readonly_view(array: Any) -> Any:
    """Read-only view. Numba compiles a function once more for writable arrays."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def stable_argsort(key: IntArray) -> IntArray:
    """Stable argsort of non-negative keys.

    If key and position fit into 63 bits they are sorted as one number: numpy's vectorized sort of int64 is about four
    times faster than its stable argsort.
    """
    position_bits = max(int(key.size) - 1, 0).bit_length()
    key_bits = int(key.max()).bit_length() if key.size else 0
    if key_bits + position_bits > 63:
        return np.argsort(key, kind="stable")
    packed = (key.astype(np.int64) << position_bits) | np.arange(key.size, dtype=np.int64)
    packed.sort()
    packed &= (1 << position_bits) - 1
    return packed


def distinct(ids: IntArray) -> IntArray:
    """Distinct ids, ascending; many times faster than ``np.unique``, which hashes integers."""
    ids = np.sort(ids)
    return ids[np.concatenate(([True], ids[1:] != ids[:-1]))] if ids.size else ids


def sort_edges(key: IntArray, weight: FloatArray | None) -> tuple[IntArray, FloatArray | None]:
    """Sort keys and their weights; parallel edges keep their order."""
    if weight is None:
        return np.sort(key), None
    order = stable_argsort(key)
    return key[order], weight[order]


def coalesce(key: IntArray, weight: FloatArray | None, how: Parallel) -> tuple[IntArray, FloatArray | None]:
    """Keep, count, sum, or take the last of parallel edges with sorted keys."""
    if how == "keep" or key.size == 0:
        counted = np.ones(key.size, np.float32) if how == "count" else weight
        return key, counted
    first = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
    if how == "count":
        return key[first], np.diff(first, append=key.size).astype(np.float32)
    if weight is None:
        return key[first], None
    if how == "sum":
        # in double precision: sums of thousands of float32 lose digits
        return key[first], np.add.reduceat(weight, first, dtype=np.float64).astype(weight.dtype)
    return key[first], weight[np.append(first[1:], key.size) - 1]


def row_pointers(degree: IntArray) -> IntArray:
    """Row pointers of rows with the given lengths: [0, d0, d0 + d1, …], int32 where it fits."""
    pointers = np.zeros(degree.size + 1, np.int64)
    np.cumsum(degree, out=pointers[1:])
    return pointers.astype(index_dtype(int(pointers[-1])), copy=False)


def expand_rows(row_ptr: IntArray) -> IntArray:
    """Row of every entry."""
    rows = np.arange(row_ptr.size - 1, dtype=index_dtype(row_ptr.size))
    return np.repeat(rows, np.diff(row_ptr))


def transpose(row_ptr: IntArray, col: IntArray, num_cols: int) -> tuple[IntArray, IntArray, IntArray]:
    """Transpose: row pointers, ascending columns, and the position of each entry in the original matrix.

    Linear in the number of entries (counting sort).
    """
    num_rows = row_ptr.size - 1
    position = np.arange(col.size, dtype=index_dtype(int(col.size)))
    transposed = sp.csr_array((position, col, row_ptr), shape=(num_rows, num_cols)).tocsc()
    return transposed.indptr, transposed.indices, transposed.data


def select_csr_rows(matrix: Csr, rows: IntArray, columns: IntArray) -> Csr:
    """Select rows of a matrix and renumber its columns; entries whose column becomes -1 are dropped."""
    row_ptr, col, weight = matrix
    first = row_ptr[:-1][rows].astype(np.int64)
    length = row_ptr[1:][rows] - first
    starts = np.cumsum(length) - length
    entries = np.repeat(first - starts, length) + np.arange(int(length.sum()))
    new = columns[col[entries]]
    stays = new >= 0
    if not stays.all():
        count = np.concatenate(([0], np.cumsum(stays)))
        length = count[starts + length] - count[starts]
        entries, new = entries[stays], new[stays]
    return row_pointers(length), new, None if weight is None else weight[entries]
