"""Rows of sparse matrices in another order, and where their first columns end: compiled, or else by numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strobe.ops import native
from strobe.ops.csr import FloatArray, IntArray, expand_rows, select_rows
from strobe.ops.threads import run_ranges

_PART_ROWS = 65_536

Matrix = tuple[IntArray, IntArray, FloatArray | None]
"""Row pointers, columns, weights (None where all are 1)."""


def row_ends(row_ptr: IntArray, col: IntArray, num_rows: int, limit: int) -> npt.NDArray[np.int64]:
    """Where the entries with a column below a limit end in each of the first rows; columns ascend in each."""
    if native.library() is None:
        return row_ends_reference(row_ptr, col, num_rows, limit)
    row_ptr, col, ends = _wide(row_ptr), _narrow(col), np.empty(num_rows, np.int64)
    run_ranges(lambda first, last: native.run("row_ends", first, last, limit, row_ptr, col, ends), num_rows, _PART_ROWS)
    return ends


def row_ends_reference(row_ptr: IntArray, col: IntArray, num_rows: int, limit: int) -> npt.NDArray[np.int64]:
    """The same by counting."""
    inside = col[: int(row_ptr[num_rows])] < limit
    counts = np.bincount(expand_rows(row_ptr[: num_rows + 1])[inside], minlength=num_rows)
    ends: npt.NDArray[np.int64] = row_ptr[:num_rows].astype(np.int64) + counts
    return ends


def reordered(matrix: Matrix, rows: IntArray, columns: IntArray) -> Matrix:
    """Some rows of a matrix in a given order, with new numbers for its columns, which ascend in each row; entries whose
    column gets -1 are left out."""
    if native.library() is None:
        return reordered_reference(matrix, rows, columns)
    row_ptr, col, weight = matrix
    row_ptr, col, rows, columns = _wide(row_ptr), _narrow(col), _wide(rows), _narrow(columns)
    old, counts = (row_ptr, col, rows, columns), np.empty(len(rows), np.int64)
    run_ranges(lambda first, last: native.run("count_entries", first, last, *old, counts), len(rows), _PART_ROWS)
    starts = np.concatenate(([0], np.cumsum(counts)))
    new_col = np.empty(int(starts[-1]), np.int32)
    at = None if weight is None else np.empty(len(new_col), np.int32)
    longest = int(np.diff(row_ptr).max(initial=0))

    def fill(first: int, last: int) -> None:
        native.run("fill_columns", first, last, *old, starts, new_col, at, np.empty(2 * longest, np.int32))

    run_ranges(fill, len(rows), _PART_ROWS)
    if weight is None or at is None:
        return starts, new_col, None
    return starts, new_col, weight[np.repeat(row_ptr[rows], counts) + at]


def reordered_reference(matrix: Matrix, rows: IntArray, columns: IntArray) -> Matrix:
    """The same by sorting all entries."""
    row_ptr, col, weight = select_rows(matrix, rows, columns)
    order = np.lexsort((col, expand_rows(row_ptr)))
    return row_ptr, col[order], None if weight is None else weight[order]


def gcn(row_ptr: IntArray, col: IntArray, weight: FloatArray | None) -> Matrix:
    """The matrix of a graph convolution, as ``normalise`` has it in a dozen passes, to the last bit: degrees are summed
    in the order of the row, and every weight is multiplied by its reader's factor first."""
    old = _wide(row_ptr), _narrow(col), None if weight is None else np.ascontiguousarray(weight, np.float64)
    num_rows = len(row_ptr) - 1
    new_ptr, root = np.empty(num_rows + 1, np.int64), np.empty(num_rows)
    native.run("gcn_degrees", num_rows, *old, new_ptr, root)
    new_col, value = np.empty(int(new_ptr[-1]), np.int32), np.empty(int(new_ptr[-1]))

    def write(first: int, last: int) -> None:
        native.run("gcn_entries", first, last, *old, new_ptr, root, new_col, value)

    run_ranges(write, num_rows, _PART_ROWS)
    return new_ptr, new_col, value


def _wide(array: IntArray) -> npt.NDArray[np.int64]:
    return np.ascontiguousarray(array, np.int64)


def _narrow(array: IntArray) -> npt.NDArray[np.int32]:
    return np.ascontiguousarray(array, np.int32)
