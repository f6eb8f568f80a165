"""Compressed sparse rows from unordered edges: sorting, merging and transposing.

An edge (destination d, source s) of n nodes travels as one int64 key, ``d * n + s``: sorting keys
sorts by destination first and by source second, and equal keys are parallel edges.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

IntArray = npt.NDArray[np.integer[Any]]
FloatArray = npt.NDArray[np.floating[Any]]
Parallel = Literal["keep", "count", "sum", "last"]

MAX_NODES = math.isqrt(np.iinfo(np.int64).max)
"""Nodes up to which the key of an edge fits into int64: about three thousand million."""

_INT32_MAX = np.iinfo(np.int32).max


def index_dtype(largest: int) -> type[np.int32] | type[np.int64]:
    """int32 where ``largest`` fits, else int64."""
    return np.int32 if largest <= _INT32_MAX else np.int64


def fixed(array: Any) -> Any:
    """A view that cannot be written to: of arrays that can, numba would compile the same once more."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def stable_argsort(key: IntArray) -> IntArray:
    """The order that sorts non-negative keys and leaves equal ones as they stand.

    Where key and position fit into 63 bits together they are sorted as one number: numpy's vectorised
    sort of int64 is about four times faster than its stable argsort.
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
    """Each id once, ascending. (numpy's ``unique`` hashes integers, which is many times slower than sorting.)"""
    ids = np.sort(ids)
    return ids[np.concatenate(([True], ids[1:] != ids[:-1]))] if ids.size else ids


def sort_edges(key: IntArray, weight: FloatArray | None) -> tuple[IntArray, FloatArray | None]:
    """Keys in ascending order, weights along with them; parallel edges keep their order."""
    if weight is None:
        return np.sort(key), None
    order = stable_argsort(key)
    return key[order], weight[order]


def merge_parallel(key: IntArray, weight: FloatArray | None, how: Parallel) -> tuple[IntArray, FloatArray | None]:
    """Sorted keys with parallel edges kept, counted, summed, or reduced to the last one."""
    if how == "keep" or key.size == 0:
        counted = np.ones(key.size, np.float32) if how == "count" else weight
        return key, counted
    first = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
    if how == "count":
        return key[first], np.diff(first, append=key.size).astype(np.float32)
    if weight is None:
        return key[first], None
    if how == "sum":
        # In double precision: thousands of float32 summands lose digits one after the other.
        return key[first], np.add.reduceat(weight, first, dtype=np.float64).astype(weight.dtype)
    return key[first], weight[np.append(first[1:], key.size) - 1]


def row_pointers(degree: IntArray) -> IntArray:
    """Offsets of rows with the given lengths: [0, d0, d0 + d1, …], int32 where it fits."""
    pointers = np.zeros(degree.size + 1, np.int64)
    np.cumsum(degree, out=pointers[1:])
    return pointers.astype(index_dtype(int(pointers[-1])), copy=False)


def expand_rows(row_ptr: IntArray) -> IntArray:
    """The row of every stored entry: the inverse of ``row_pointers``."""
    rows = np.arange(row_ptr.size - 1, dtype=index_dtype(row_ptr.size))
    return np.repeat(rows, np.diff(row_ptr))


def transpose(row_ptr: IntArray, col: IntArray, num_cols: int) -> tuple[IntArray, IntArray, IntArray]:
    """CSR of the transposed matrix, and the position each of its entries has in this one.

    Linear in the number of entries (a counting sort), and columns come out sorted.
    """
    num_rows = row_ptr.size - 1
    position = np.arange(col.size, dtype=index_dtype(int(col.size)))
    turned = sp.csr_array((position, col, row_ptr), shape=(num_rows, num_cols)).tocsc()
    return turned.indptr, turned.indices, turned.data


def select_rows(
    matrix: tuple[IntArray, IntArray, FloatArray | None], rows: IntArray, columns: IntArray
) -> tuple[IntArray, IntArray, FloatArray | None]:
    """Some rows of a matrix with new numbers for its columns; entries whose column gets -1 are left out."""
    row_ptr, col, weight = matrix
    first = row_ptr[:-1][rows].astype(np.int64)
    length = row_ptr[1:][rows] - first
    starts = np.cumsum(length) - length
    entries = np.repeat(first - starts, length) + np.arange(int(length.sum()))
    new = columns[col[entries]]
    stays = new >= 0
    if not stays.all():
        kept = np.concatenate(([0], np.cumsum(stays)))
        length = kept[starts + length] - kept[starts]
        entries, new = entries[stays], new[stays]
    return row_pointers(length), new, None if weight is None else weight[entries]
