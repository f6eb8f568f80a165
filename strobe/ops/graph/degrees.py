"""Degrees of cells, lookups by degree, and decoding of edge keys.

Without compiled kernels, and for few numbers, all are computed by numpy, with equal results.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strobe.ops import native
from strobe.ops.runtime.njit import SMALL
from strobe.ops.sparse.csr import FloatArray, IntArray, index_dtype


def count_occurrences(col: IntArray, size: int, dtype: Any) -> IntArray:
    """Count the occurrences of 0 … size - 1, [size]."""
    if col.dtype != dtype or not has_kernel(col):
        return np.bincount(col, minlength=size).astype(dtype)
    counts = np.zeros(size, dtype)
    native.run_base("count_occurrences", col, len(col), col, counts)
    return counts


def max_degree(row_ptr: IntArray, out_degree: IntArray) -> int:
    """Largest in-degree or out-degree; 0 without cells."""
    if not has_kernel(out_degree, row_ptr):
        return int(max(np.diff(row_ptr).max(initial=0), out_degree.max(initial=0)))
    largest = np.zeros(1, np.int64)
    native.run_base("max_degree", row_ptr, len(out_degree), row_ptr, out_degree, largest)
    return int(largest[0])


def lookup_by_degree(row_ptr: IntArray, out_degree: IntArray, table: FloatArray) -> FloatArray:
    """Look up ``table`` [degrees, 2] by in-degree and out-degree of every cell, [n, 2]."""
    if table.dtype != np.float32 or not table.flags.c_contiguous or not has_kernel(out_degree, row_ptr):
        return np.stack([table[np.diff(row_ptr), 0], table[out_degree, 1]], axis=1)
    rows = np.empty((len(out_degree), 2), np.float32)
    native.run_base("lookup_by_degree", row_ptr, len(out_degree), row_ptr, out_degree, table, rows)
    return rows


def decode_edge_keys(key: IntArray, size: int, degree: IntArray) -> tuple[IntArray, int]:
    """Decode ascending edge keys to sources and the number of self-loops; adds to ``degree`` [size]."""
    dtype = index_dtype(size)
    if key.dtype != np.int64 or degree.dtype != dtype or not has_kernel(key) or not degree.flags.c_contiguous:
        row, source = np.divmod(key, size) if key.size else (key, key)
        degree += np.bincount(row, minlength=size).astype(degree.dtype)
        return source.astype(dtype), int((row == source).sum())
    col, loops = np.empty(key.size, dtype), np.zeros(1, np.int64)
    native.run_base("decode_edge_keys", degree, key.size, size, key, degree, col, loops)
    return col, int(loops[0])


def has_kernel(first: IntArray, *others: IntArray) -> bool:
    """Whether a kernel takes these arrays: int32 or int64, all alike and dense, and enough entries."""
    return (
        first.size >= SMALL
        and first.dtype in (np.int32, np.int64)
        and all(each.dtype == first.dtype and each.flags.c_contiguous for each in (first, *others))
        and native.base_library() is not None
    )
