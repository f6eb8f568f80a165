"""Scores of all pairs of rows and columns as a product of factors, ranked tile by tile: never all in memory.

Floor: 2 K flops per score of factors with K columns. A product writes a tile, and one compiled pass reads
it while it is in the cache: main memory sees the factors alone, 4 K M bytes of M columns for each ``TILE_ROWS`` rows. A
tile of a row stays in the first cache while all thresholds of the row are compared with it. Of a tile in memory the
passes read and write 8 bytes per score; n thresholds cost n comparisons per score, 8 or 16 at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from strobe.ops.runtime.njit import cached_njit
from strobe.ops.runtime.parallel import run_parts, run_ranges

TILE_ROWS = 256
"""Rows of a tile: 4 MiB in float32."""

PLAIN_SCORES = 1 << 20
"""Scores that ``count_above_plain`` copies at a time."""

STRIP_TILES = 8
"""Tiles of a strip, the work of one thread at a time."""


@dataclass(frozen=True, eq=False)
class PairValues:
    """Values of some pairs by row, then column; -inf marks pairs to leave out.

    Args:
        ptr: where the pairs of each row begin, [S + 1].
        col: columns, ascending per row, [n].
        value: [n].
    """

    ptr: npt.NDArray[np.int64]
    col: npt.NDArray[np.int64]
    value: npt.NDArray[Any]

    @classmethod
    def build(cls, index: Tensor, value: Tensor, num_rows: int) -> PairValues:
        """Sort pairs, [2, n]; equal ones stay in their order."""
        row, col = index.numpy()
        size = 1 + int(col.max(initial=0))
        key = row * size + col
        # A stable sort reads sorted pairs once, and merges two sorted lists in one pass.
        order = np.argsort(key, kind="stable")
        ptr = np.searchsorted(key[order], size * np.arange(num_rows + 1))
        return cls(ptr, col[order], value.detach().numpy()[order])

    def with_excluded(self, index: Tensor) -> PairValues:
        """The same pairs, and others to leave out."""
        row = np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))
        known = torch.from_numpy(np.stack([row, self.col]))
        value = np.concatenate([self.value, np.full(index.shape[1], -np.inf, self.value.dtype)])
        return PairValues.build(torch.cat([known, index], 1), torch.from_numpy(value), len(self.ptr) - 1)

    def at(self, index: Tensor) -> Tensor:
        """The values of pairs, [2, n]; 0 for others. No pair of ``self`` comes twice."""
        size = 1 + max(int(self.col.max(initial=0)), int(index[1].max()) if index.shape[1] else 0)
        keys = np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr)) * size + self.col
        wanted = index[0].numpy() * size + index[1].numpy()
        if not len(keys):
            return torch.zeros(len(wanted), dtype=torch.from_numpy(self.value).dtype)
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return torch.from_numpy(np.where(keys[place] == wanted, self.value[place], 0).astype(self.value.dtype))


@dataclass(frozen=True, eq=False, kw_only=True)
class FactoredScores:
    """Scores ``query @ key.T + of_columns + of_rows[:, None]``, and ``pairs`` added to some, on the CPU.

    Args:
        query: [S, K].
        key: [M, K].
        of_rows: [S].
        of_columns: [M].
        pairs: added to the scores of some pairs.
        block_rows: rows of a block that iteration yields.
    """

    query: Tensor
    key: Tensor
    of_rows: Tensor
    of_columns: Tensor
    pairs: PairValues
    block_rows: int

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the first row and the scores, [b, M], of consecutive rows."""
        ptr, col, value = self.pairs.ptr, *map(torch.from_numpy, (self.pairs.col, self.pairs.value))
        for first in range(0, len(self.query), self.block_rows):
            last = min(first + self.block_rows, len(self.query))
            scores = torch.addmm(self.of_columns, self.query[first:last], self.key.T)
            scores += self.of_rows[first:last, None]
            row = torch.from_numpy(np.repeat(np.arange(last - first), np.diff(ptr[first : last + 1])))
            here = slice(int(ptr[first]), int(ptr[last]))
            yield first, scores.index_put_((row, col[here]), value[here], accumulate=True)

    def at(self, index: Tensor) -> Tensor:
        """The scores of pairs, [2, n]."""
        row, column = index
        products = torch.cat(
            [
                torch.linalg.vecdot(self.query[r], self.key[c])
                for r, c in zip(row.split(1 << 16), column.split(1 << 16), strict=True)
            ]
        )
        return products + self.of_columns[column] + self.of_rows[row] + self.pairs.at(index)

    def for_tiles(self, work: Callable[[int, int, int, npt.NDArray[Any]], None], strip_tiles: int) -> None:
        """Call ``work(strip, first row, first column, products)`` for tiles, those of a strip in order of columns."""
        rows, columns = -(-len(self.query) // TILE_ROWS), TILE_COLUMNS * strip_tiles
        strips = -(-len(self.key) // columns)

        def run(part: int) -> None:
            first, strip = part // strips * TILE_ROWS, part % strips
            query = self.query[first : first + TILE_ROWS]
            buffer = query.new_empty(len(query) * min(TILE_COLUMNS, len(self.key)))
            for begin in range(strip * columns, min((strip + 1) * columns, len(self.key)), TILE_COLUMNS):
                key = self.key[begin : begin + TILE_COLUMNS]
                tile = buffer[: len(query) * len(key)].view(len(query), len(key))
                work(strip, first, begin, torch.mm(query, key.T, out=tile).numpy())

        run_parts(run, rows * strips)

    def count_above(
        self, excluded: Tensor, hidden: Tensor, threshold_ptr: Tensor, low: Tensor, high: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Count the scores of each row above thresholds.

        Args:
            excluded: pairs that are not counted, [2, e].
            hidden: columns that are not counted, ascending.
            threshold_ptr: where the thresholds of each row begin, [S + 1].
            low: thresholds, [n].
            high: thresholds, [n].

        Returns:
            Numbers of scores > high and >= low, [n], and whether a row has a NaN besides excluded pairs, [S].
        """
        strips = max(-(-len(self.key) // (TILE_COLUMNS * STRIP_TILES)), 1)
        above, at_least = (np.zeros((strips, len(low)), np.int64) for _ in range(2))
        num_nan = np.zeros((strips, len(self.query)), np.int64)
        of_rows, of_columns = self.of_rows.numpy(), self.of_columns.numpy()
        pairs = self.pairs.with_excluded(excluded)
        thresholds = [each.numpy() for each in (hidden, threshold_ptr, low, high)]
        rest: Any = (pairs.ptr, pairs.col, pairs.value, *thresholds)

        def count(strip: int, row: int, column: int, tile: npt.NDArray[Any]) -> None:
            counts: Any = (above[strip], at_least[strip], num_nan[strip])
            count_above(0, len(tile), tile, row, column, of_rows, of_columns, *rest, *counts)

        self.for_tiles(count, STRIP_TILES)
        counted = torch.from_numpy(above.sum(0)), torch.from_numpy(at_least.sum(0))
        return *counted, torch.from_numpy(num_nan.sum(0) > 0)

    def top(self, count: int) -> tuple[Tensor, Tensor]:
        """The highest scores of each row, descending, and their columns, [S, count] each."""
        values = self.query.new_empty(len(self.query), count)
        positions = torch.empty(len(self.query), count, dtype=torch.int64)
        of_rows, of_columns, top, position = (e.numpy() for e in (self.of_rows, self.of_columns, values, positions))
        pairs = (self.pairs.ptr, self.pairs.col, self.pairs.value)

        def keep(strip: int, row: int, column: int, tile: npt.NDArray[Any]) -> None:
            del strip
            keep_top(0, len(tile), tile, row, column, of_rows, of_columns, *pairs, top, position)

        self.for_tiles(keep, -(-len(self.key) // TILE_COLUMNS))  # one strip: columns must come in order
        return values, positions


def count_above_in_rows(
    scores: Tensor, excluded: Tensor, hidden: Tensor, threshold_ptr: Tensor, low: Tensor, high: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """``FactoredScores.count_above`` for scores in memory, [b, M], on the CPU; they are overwritten."""
    above, at_least = (np.zeros(len(low), np.int64) for _ in range(2))
    num_nan, table = np.zeros(len(scores), np.int64), scores.detach().numpy()
    pairs = PairValues.build(excluded, scores.new_full((excluded.shape[1],), -torch.inf), len(scores))
    none = np.empty(0, table.dtype)
    thresholds = [each.numpy() for each in (hidden, threshold_ptr, low, high)]
    rest: Any = (none, none, pairs.ptr, pairs.col, pairs.value, *thresholds, above, at_least, num_nan)

    def run(first: int, last: int) -> None:
        count_above(first, last, table, 0, 0, *rest)

    run_ranges(run, len(scores))
    return torch.from_numpy(above), torch.from_numpy(at_least), torch.from_numpy(num_nan > 0)


def count_above_plain(
    scores: Tensor, excluded: Tensor, hidden: Tensor, threshold_ptr: Tensor, low: Tensor, high: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """``count_above_in_rows`` in torch, on any device: a copy of its row and two comparisons for each threshold."""
    scores[excluded[0], excluded[1]] = -torch.inf
    is_nan = torch.isnan(scores).any(1)
    scores[:, hidden] = -torch.inf
    row = torch.repeat_interleave(torch.diff(threshold_ptr))
    above, at_least = torch.empty_like(row), torch.empty_like(row)
    for part in torch.arange(len(row), device=row.device).split(max(PLAIN_SCORES // max(scores.shape[1], 1), 1)):
        rows = scores[row[part]]
        above[part] = (rows > high[part, None]).sum(1)
        at_least[part] = (rows >= low[part, None]).sum(1)
    return above, at_least, is_nan


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
