"""Degrees of many cells, and what is looked up by them: of millions of cells most have the same few degrees."""

from __future__ import annotations

from typing import Any

import numpy as np

from strobe.ops.compiled import compiled
from strobe.ops.csr import FloatArray, IntArray, fixed


def counted(col: IntArray, size: int, dtype: Any) -> IntArray:
    """How often every number below ``size`` comes, [size]."""
    return _counted(fixed(col), np.zeros(size, dtype))


def largest(row_ptr: IntArray, out_degree: IntArray) -> int:
    """The largest degree, of arcs that reach a cell and of those that leave it; 0 where there is no cell."""
    return _largest(fixed(row_ptr), fixed(out_degree))


def looked_up(row_ptr: IntArray, out_degree: IntArray, table: FloatArray) -> FloatArray:
    """For every cell what ``table`` [degrees, 2] has for its in-degree and its out-degree, [n, 2]."""
    return _looked_up(fixed(row_ptr), fixed(out_degree), fixed(table), np.empty((len(out_degree), 2), table.dtype))


@compiled
def _counted(col: Any, counts: IntArray) -> IntArray:
    for k in range(col.size):
        counts[col[k]] += 1
    return counts


@compiled
def _largest(row_ptr: Any, out_degree: Any) -> int:
    most = 0
    for i in range(out_degree.size):
        most = max(most, out_degree[i], row_ptr[i + 1] - row_ptr[i])
    return most


@compiled
def _looked_up(row_ptr: Any, out_degree: Any, table: Any, rows: FloatArray) -> FloatArray:
    for i in range(out_degree.size):
        rows[i, 0] = table[row_ptr[i + 1] - row_ptr[i], 0]
        rows[i, 1] = table[out_degree[i], 1]
    return rows
