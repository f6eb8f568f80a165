"""Native kernels over CSR rows, with numpy references: sorting, reordering, row ends, GCN normalization."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strobe.ops import native
from strobe.ops.runtime.parallel import run_ranges
from strobe.ops.sparse.csr import Csr, FloatArray, IntArray, expand_rows, select_csr_rows

_PART_ROWS = 65_536


def row_ends(row_ptr: IntArray, col: IntArray, num_rows: int, limit: int) -> npt.NDArray[np.int64]:
    """End of the entries with a column below ``limit`` in each of the first rows; columns ascend in each row."""
    if native.library() is None:
        return row_ends_reference(row_ptr, col, num_rows, limit)
    row_ptr, col, ends = _as_int64(row_ptr), _as_int32(col), np.empty(num_rows, np.int64)
    run_ranges(lambda first, last: native.run("row_ends", first, last, limit, row_ptr, col, ends), num_rows, _PART_ROWS)
    return ends


def row_ends_reference(row_ptr: IntArray, col: IntArray, num_rows: int, limit: int) -> npt.NDArray[np.int64]:
    """``row_ends`` by counting."""
    inside = col[: int(row_ptr[num_rows])] < limit
    counts = np.bincount(expand_rows(row_ptr[: num_rows + 1])[inside], minlength=num_rows)
    ends: npt.NDArray[np.int64] = row_ptr[:num_rows].astype(np.int64) + counts
    return ends


def reorder_rows(matrix: Csr, rows: IntArray, columns: IntArray) -> Csr:
    """Select rows in a given order and renumber columns, ascending in each row; entries with column -1 are dropped."""
    if native.library() is None:
        return reorder_rows_reference(matrix, rows, columns)
    row_ptr, col, weight = matrix
    row_ptr, col, rows, columns = _as_int64(row_ptr), _as_int32(col), _as_int64(rows), _as_int32(columns)
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


def reorder_rows_reference(matrix: Csr, rows: IntArray, columns: IntArray) -> Csr:
    """``reorder_rows`` by sorting all entries."""
    row_ptr, col, weight = select_csr_rows(matrix, rows, columns)
    order = np.lexsort((col, expand_rows(row_ptr)))
    return row_ptr, col[order], None if weight is None else weight[order]


def gcn_norm(row_ptr: IntArray, col: IntArray, weight: FloatArray | None) -> Csr:
    """GCN normalization, bit-identical to the numpy version in ``normalize``: degrees are summed in row order, and each
    weight is multiplied by the factor of its row first."""
    old = _as_int64(row_ptr), _as_int32(col), None if weight is None else np.ascontiguousarray(weight, np.float64)
    num_rows = len(row_ptr) - 1
    new_ptr, root = np.empty(num_rows + 1, np.int64), np.empty(num_rows)
    native.run("gcn_degrees", num_rows, *old, new_ptr, root)
    new_col, value = np.empty(int(new_ptr[-1]), np.int32), np.empty(int(new_ptr[-1]))

    def write(first: int, last: int) -> None:
        native.run("gcn_entries", first, last, *old, new_ptr, root, new_col, value)

    run_ranges(write, num_rows, _PART_ROWS)
    return new_ptr, new_col, value


def sort_by_row(row: npt.NDArray[np.int32], num_rows: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Where the items of each row begin, [num_rows + 1], and the items in order of rows, [n] (a counting sort)."""
    if native.library() is None:
        return sort_by_row_reference(row, num_rows)
    ptr, items = np.empty(num_rows + 1, np.int64), np.empty(len(row), np.int32)
    native.run("sort_by_row", len(row), _as_int32(row), num_rows, ptr, items)
    return ptr, items


def sort_by_row_reference(
    row: npt.NDArray[np.int32], num_rows: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """``sort_by_row`` by a stable sort."""
    ptr = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=num_rows))))
    return ptr, np.argsort(row, kind="stable").astype(np.int32)


def _as_int64(array: IntArray) -> npt.NDArray[np.int64]:
    return np.ascontiguousarray(array, np.int64)


def _as_int32(array: IntArray) -> npt.NDArray[np.int32]:
    return np.ascontiguousarray(array, np.int32)
