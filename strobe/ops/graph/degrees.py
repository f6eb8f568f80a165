"""Degrees of cells, lookups by degree, and decoding of edge keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from strobe.ops.runtime.njit import SMALL, cached_njit
from strobe.ops.sparse.csr import FloatArray, IntArray, index_dtype, readonly_view


def count_occurrences(col: IntArray, size: int, dtype: Any) -> IntArray:
    """Count the occurrences of 0 … size - 1, [size]."""
    if len(col) < SMALL:
        return np.bincount(col, minlength=size).astype(dtype)
    return _count_occurrences(readonly_view(col), np.zeros(size, dtype))


def max_degree(row_ptr: IntArray, out_degree: IntArray) -> int:
    """Largest in-degree or out-degree; 0 without cells."""
    if len(out_degree) < SMALL:
        return int(max(np.diff(row_ptr).max(initial=0), out_degree.max(initial=0)))
    return _max_degree(readonly_view(row_ptr), readonly_view(out_degree))


def lookup_by_degree(row_ptr: IntArray, out_degree: IntArray, table: FloatArray) -> FloatArray:
    """Look up ``table`` [degrees, 2] by in-degree and out-degree of every cell, [n, 2]."""
    if len(out_degree) < SMALL:
        return np.stack([table[np.diff(row_ptr), 0], table[out_degree, 1]], axis=1)
    return _lookup_by_degree(
        readonly_view(row_ptr),
        readonly_view(out_degree),
        readonly_view(table),
        np.empty((len(out_degree), 2), table.dtype),
    )


@cached_njit
def _count_occurrences(col: Any, counts: IntArray) -> IntArray:
    for k in range(col.size):
        counts[col[k]] += 1
    return counts


@cached_njit
def _max_degree(row_ptr: Any, out_degree: Any) -> int:
    most = 0
    for i in range(out_degree.size):
        most = max(most, out_degree[i], row_ptr[i + 1] - row_ptr[i])
    return most


@cached_njit
def _lookup_by_degree(row_ptr: Any, out_degree: Any, table: Any, rows: FloatArray) -> FloatArray:
    for i in range(out_degree.size):
        rows[i, 0] = table[row_ptr[i + 1] - row_ptr[i], 0]
        rows[i, 1] = table[out_degree[i], 1]
    return rows


def decode_edge_keys(key: IntArray, size: int, degree: IntArray) -> tuple[IntArray, int]:
    """Decode ascending edge keys to sources and the number of self-loops; adds to ``degree`` [size]."""
    if key.size < SMALL:
        row, source = np.divmod(key, size) if key.size else (key, key)
        degree += np.bincount(row, minlength=size).astype(degree.dtype)
        return source.astype(index_dtype(size)), int((row == source).sum())
    col = np.empty(key.size, index_dtype(size))
    return col, _decode_edge_keys(readonly_view(key), size, degree, col)


@cached_njit
def _decode_edge_keys(key: Any, size: int, degree: Any, col: Any) -> int:
    row, first, loops = 0, 0, 0
    for k in range(key.size):
        if key[k] - first >= size:
            row = key[k] // size
            first = row * size
        col[k] = key[k] - first
        degree[row] += 1
        loops += key[k] - first == row
    return loops
