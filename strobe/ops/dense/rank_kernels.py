"""Compiled passes over tiles of scores: numbers of scores above thresholds, and the highest scores of each row.

A tile of a row stays in the first cache while all thresholds of the row are compared with it. Of a tile in memory the
passes read and write 8 bytes per score; n thresholds cost n comparisons per score, 8 or 16 at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strobe.ops.runtime.njit import cached_njit

TILE_COLUMNS = 4096
"""Scores of a row that are compared at a time: 16 KiB in float32."""

_SCAN = 64
"""Scores compared with the lowest of the highest ones at a time."""


@cached_njit
def count_above(
    first: int,
    last: int,
    scores: Any,
    first_row: int,
    first_column: int,
    of_rows: Any,
    of_columns: Any,
    ptr: Any,
    col: Any,
    value: Any,
    hidden: Any,
    threshold_ptr: Any,
    low: Any,
    high: Any,
    above: Any,
    at_least: Any,
    num_nan: Any,
) -> None:
    """Complete rows ``first`` up to ``last`` of a block and add the numbers of scores above the thresholds of each row.

    Args:
        first: row of the block.
        last: row of the block.
        scores: [b, c]; overwritten.
        first_row: row of the matrix that the block begins with.
        first_column: column of the matrix that the block begins with.
        of_rows: added to all scores of a row, [S] or empty.
        of_columns: added to all scores of a column, [M] or empty.
        ptr: where the pairs of each row begin, [S + 1].
        col: their columns, ascending per row.
        value: added to the scores of pairs; -inf replaces the score.
        hidden: columns whose scores are -inf, ascending.
        threshold_ptr: where the thresholds of each row begin, [S + 1].
        low: thresholds, [n].
        high: thresholds, [n].
        above: numbers of scores > high, [n].
        at_least: numbers of scores >= low, [n].
        num_nan: numbers of NaN per row, those of hidden columns too, [S].
    """
    for i in range(first, last):
        row = first_row + i
        for start in range(0, scores.shape[1], TILE_COLUMNS):
            tile = scores[i, start : start + TILE_COLUMNS]
            begin = first_column + start
            num_nan[row] += _complete(tile, row, begin, of_rows, of_columns, ptr, col, value)
            if len(hidden):
                k = _lower_bound(hidden, 0, len(hidden), begin)
                while k < len(hidden) and hidden[k] < begin + len(tile):
                    tile[hidden[k] - begin] = -np.inf
                    k += 1
            for p in range(threshold_ptr[row], threshold_ptr[row + 1]):
                a, b = np.int32(0), np.int32(0)  # 32 bits: as wide as a score, so that 8 are counted at a time
                up, down = high[p], low[p]
                for j in range(len(tile)):
                    a = np.int32(a + np.int32(tile[j] > up))
                    b = np.int32(b + np.int32(tile[j] >= down))
                above[p] += a
                at_least[p] += b


@cached_njit
def keep_top(
    first: int,
    last: int,
    scores: Any,
    first_row: int,
    first_column: int,
    of_rows: Any,
    of_columns: Any,
    ptr: Any,
    col: Any,
    value: Any,
    top: Any,
    position: Any,
) -> None:
    """Complete rows as ``count_above`` does and merge them into the highest scores of each row so far.

    Blocks of a row come in order of columns. NaN is the highest score, as for ``torch.topk``; of equal scores the first
    column is kept.

    Args:
        top: descending scores, [S, count].
        position: their columns, [S, count].
    """
    count = top.shape[1]
    for i in range(first, last):
        row = first_row + i
        for start in range(0, scores.shape[1], TILE_COLUMNS):
            tile = scores[i, start : start + TILE_COLUMNS]
            begin = first_column + start
            _complete(tile, row, begin, of_rows, of_columns, ptr, col, value)
            j = 0
            while j < len(tile):
                if begin + j >= count:  # skip scores that are not above the lowest kept
                    lowest = top[row, count - 1]
                    hits = np.int32(0)
                    end = min(j + _SCAN, len(tile))
                    for m in range(j, end):
                        hits = np.int32(hits + np.int32(not tile[m] <= lowest))
                    if hits == 0:
                        j = end
                        continue
                else:
                    end = min(j + count - begin, len(tile))
                for m in range(j, end):
                    _insert(tile[m], begin + m, top[row], position[row], count)
                j = end


@cached_njit
def _complete(tile: Any, row: int, begin: int, of_rows: Any, of_columns: Any, ptr: Any, col: Any, value: Any) -> Any:
    """Add what belongs to the row, the columns and single pairs; return the number of NaN."""
    nan = np.int32(0)
    if len(of_rows):
        added = of_rows[row]
        columns = of_columns[begin : begin + len(tile)]
        for j in range(len(tile)):
            score = (tile[j] + columns[j]) + added
            tile[j] = score
            nan = np.int32(nan + np.int32(score != score))
    else:
        for j in range(len(tile)):
            nan = np.int32(nan + np.int32(tile[j] != tile[j]))
    k = _lower_bound(col, ptr[row], ptr[row + 1], begin)
    while k < ptr[row + 1] and col[k] < begin + len(tile):
        j = col[k] - begin
        before = tile[j]
        score = before + value[k] if value[k] != -np.inf else value[k]
        tile[j] = score
        nan = np.int32(nan + np.int32(score != score) - np.int32(before != before))
        k += 1
    return nan


@cached_njit
def _lower_bound(values: Any, first: int, last: int, wanted: int) -> int:
    """The first position among ``values[first:last]``, which ascend, of a value that is not less."""
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@cached_njit
def _insert(score: float, column: int, top: Any, position: Any, count: int) -> None:
    """Insert a score into the descending scores of a row, of which ``min(column, count)`` are set."""
    place = min(column, count)
    while place > 0:
        other = top[place - 1]
        if not (score > other or (score != score and other == other)):
            break
        if place < count:
            top[place], position[place] = other, position[place - 1]
        place -= 1
    if place < count:
        top[place], position[place] = score, column
