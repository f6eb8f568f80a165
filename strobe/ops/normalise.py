"""One definition of self-loops and normalisation for all models, as weights of a sparse matrix by rows.

Rows are destinations: row i lists the cells that cell i reads. Parallel edges count each. Degrees sum the absolute
weights, so that signed edges neither cancel nor give the root of a negative number.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from strobe.errors import UnknownNameError
from strobe.ops import native
from strobe.ops.csr import FloatArray, IntArray, expand_rows, row_pointers, transpose
from strobe.ops.rows import gcn

Norm = Literal["gcn", "mean", "mean_out", "sum", "loops"]
"""``gcn``: self-loops where there is none (weight 1), each arc divided by the root of both ends' degrees (Kipf and
Welling). ``mean``: the average of the cells read; ``mean_out``: that over the arcs that leave a cell, not those that
reach it (the random walk along the edges; ``mean`` is the one against them). ``sum``: the weights as they are.
``loops``: no weights, exactly one self-loop per cell, as graph attention has it."""

Csr = tuple[IntArray, IntArray, FloatArray | None]
"""Row pointers, columns ascending in each row, weights (None where all are 1)."""


def normalise(norm: Norm, row_ptr: IntArray, col: IntArray, weight: FloatArray | None) -> Csr:
    """The matrix that aggregates one snapshot; weights in double precision."""
    if norm not in get_args(Norm):
        raise UnknownNameError("normalisation", norm, get_args(Norm))
    if norm == "sum":
        return row_ptr, col, None if weight is None else weight.astype(np.float64)
    if norm == "loops":
        row_ptr, col, _ = _with_loops(row_ptr, col, np.ones(col.size), again=True)
        return row_ptr, col, None
    if norm == "gcn" and native.library() is not None:
        return gcn(row_ptr, col, weight)
    values: FloatArray = np.ones(col.size) if weight is None else weight.astype(np.float64)
    if norm == "gcn":
        row_ptr, col, values = _with_loops(row_ptr, col, values, again=False)
        row = expand_rows(row_ptr)
        root = inverse(np.sqrt(_row_sums(np.abs(values), row, row_ptr.size - 1)))
        return row_ptr, col, root[row] * values * root[col]
    if norm == "mean_out":
        row_ptr, col, at = transpose(row_ptr, col, row_ptr.size - 1)
        values = values[at]
    row = expand_rows(row_ptr)
    return row_ptr, col, values * inverse(_row_sums(np.abs(values), row, row_ptr.size - 1))[row]


def _row_sums(values: FloatArray, row: IntArray, rows: int) -> FloatArray:
    return np.bincount(row, weights=values, minlength=rows).astype(np.float64)


def inverse(values: FloatArray) -> FloatArray:
    """1 / value, and 0 for 0: a cell that reads nothing gets nothing."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def _with_loops(
    row_ptr: IntArray, col: IntArray, values: FloatArray, *, again: bool
) -> tuple[IntArray, IntArray, FloatArray]:
    """The matrix with a self-loop of weight 1 in every row that has none; ``again``: one, whatever was there."""
    rows = row_ptr.size - 1
    row = expand_rows(row_ptr)
    loop = row == col
    if again:
        row, col, values = row[~loop], col[~loop], values[~loop]
        missing = np.arange(rows, dtype=col.dtype)
    else:
        has = np.zeros(rows, bool)
        has[row[loop]] = True
        missing = np.flatnonzero(~has).astype(col.dtype)
    # Each new entry goes before the first of its row with a larger column; both lists are in row and column order.
    key = row.astype(np.int64) * rows + col
    at = np.searchsorted(key, missing.astype(np.int64) * (rows + 1))
    degree = np.bincount(row, minlength=rows)
    degree[missing] += 1
    return row_pointers(degree), np.insert(col, at, missing), np.insert(values, at, 1.0)
