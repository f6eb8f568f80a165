"""Loops over the rows of sparse matrices: where corners end, and rows in another order. Parts of the rows at a time."""

from __future__ import annotations

import numpy as np

from strobe.ops.compiled import compiled
from strobe.ops.csr import FloatArray, IntArray

_SHORT = 48
"""Rows up to this length are sorted by insertion."""


@compiled
def row_ends(row_ptr: IntArray, col: IntArray, limit: int, ends: IntArray, first: int, last: int) -> None:
    """For rows first to last: where entries whose column is below a limit end."""
    for i in range(first, last):
        low, high = row_ptr[i], row_ptr[i + 1]
        if low == high or col[high - 1] < limit:
            ends[i] = high
            continue
        while low < high:
            middle = (low + high) >> 1
            if col[middle] < limit:
                low = middle + 1
            else:
                high = middle
        ends[i] = low


@compiled
def count_entries(
    row_ptr: IntArray, col: IntArray, rows: IntArray, columns: IntArray, counts: IntArray, first: int, last: int
) -> None:
    """For new rows first to last: how many of the old row's entries get a column."""
    for i in range(first, last):
        count = 0
        for e in range(row_ptr[rows[i]], row_ptr[rows[i] + 1]):
            if columns[col[e]] >= 0:
                count += 1
        counts[i] = count


@compiled
def fill_rows(
    row_ptr: IntArray,
    col: IntArray,
    weight: FloatArray,
    rows: IntArray,
    columns: IntArray,
    starts: IntArray,
    new_col: IntArray,
    new_weight: FloatArray,
    first: int,
    last: int,
) -> None:
    """For new rows first to last: the entries that get a column, in its order; without weights if there are none."""
    weighted = new_weight.size > 0
    for i in range(first, last):
        start, at = starts[i], starts[i]
        for e in range(row_ptr[rows[i]], row_ptr[rows[i] + 1]):
            column = columns[col[e]]
            if column >= 0:
                new_col[at] = column
                if weighted:
                    new_weight[at] = weight[e]
                at += 1
        if at - start > _SHORT:
            order = np.argsort(new_col[start:at], kind="mergesort")
            new_col[start:at] = new_col[start:at][order]
            if weighted:
                new_weight[start:at] = new_weight[start:at][order]
            continue
        for k in range(start + 1, at):
            column = new_col[k]
            value = new_weight[k] if weighted else 0.0
            j = k - 1
            while j >= start and new_col[j] > column:
                new_col[j + 1] = new_col[j]
                if weighted:
                    new_weight[j + 1] = new_weight[j]
                j -= 1
            new_col[j + 1] = column
            if weighted:
                new_weight[j + 1] = value
