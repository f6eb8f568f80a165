"""The logarithm of the sum of exponentials of each row of a product of factors, tile by tile, with gradients.

Floor: 2 K flops per score of factors with K columns forward and 6 K backward, which computes tiles again: main memory
sees the factors alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from strobe.ops.runtime.njit import cached_njit
from strobe.ops.runtime.parallel import run_parts

TILE_SCORES = 1 << 17
"""Scores of a tile: 512 KiB in float32."""

_STRIPS, _STRIP_ROWS = 8, 1 << 16
"""Maximum number of partial sums of gradients, and of columns of scores in all of them. Neither depends on the number
of threads, nor does the order in which gradients are added."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores ``query @ key.T + of_columns + of_rows[:, None]``, and values added to some pairs, on the CPU.

    Args:
        query: [S, K].
        key: [M, K].
        of_rows: [S].
        of_columns: [M].
        pairs: rows and columns of pairs with a value, in order of rows, [2, n].
        values: [n].
    """

    query: Tensor
    key: Tensor
    of_rows: Tensor
    of_columns: Tensor
    pairs: Tensor
    values: Tensor


def row_logsumexp(scores: Scores, excluded: Tensor) -> Tensor:
    """Compute the logarithm of the sum of exponentials of each row.

    Args:
        scores: the scores; all five tensors of factors and values may have gradients.
        excluded: rows and columns of pairs that are left out, in any order, [2, e].

    Returns:
        A number per row, [S]; the lowest number of the type where all pairs of a row are excluded.
    """
    order = torch.argsort(excluded[0], stable=True)
    excluded = excluded[:, order]
    num_rows = len(scores.query)
    indices = [(_row_ptr(each[0], num_rows), each[1].numpy()) for each in (scores.pairs, excluded)]
    factors = scores.query, scores.key, scores.of_rows, scores.of_columns, scores.values
    totals: Tensor = _RowLogSumExp.apply((*indices[0], *indices[1]), *factors)  # type: ignore[no-untyped-call]
    return totals


def _row_ptr(row: Tensor, num_rows: int) -> npt.NDArray[np.int64]:
    ptr: npt.NDArray[np.int64] = np.searchsorted(row.numpy(), np.arange(num_rows + 1))
    return ptr


class _RowLogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, indices: Any, *factors: Tensor) -> Tensor:
        tiles = _Tiles(indices, factors)
        totals = factors[0].new_empty(len(factors[0]))

        def run(strip: int) -> None:
            for rows, tile in tiles.of_strip(strip):
                totals[rows] = torch.logsumexp(tile, 1)

        run_parts(run, tiles.num_strips)
        totals.clamp_(min=torch.finfo(totals.dtype).min)
        ctx.indices = indices
        ctx.save_for_backward(totals, *factors)
        return totals

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        totals, *factors = ctx.saved_tensors
        tiles = _Tiles(ctx.indices, tuple(factors))
        query, key, of_rows, of_columns, values = (torch.zeros_like(each) for each in factors)
        keys, columns = (each.new_zeros(tiles.num_strips, *each.shape) for each in (key, of_columns))

        def run(strip: int) -> None:
            for rows, tile in tiles.of_strip(strip):
                tile.sub_(totals[rows, None]).exp_().mul_(gradient[rows, None])
                torch.mm(tile, tiles.key, out=query[rows])
                torch.sum(tile, 1, out=of_rows[rows])
                keys[strip].addmm_(tile.T, tiles.query[rows])
                columns[strip] += tile.sum(0)
                ptr, col, *_ = ctx.indices
                _read_values(tile.numpy(), rows.start, ptr, col, values.numpy())

        run_parts(run, tiles.num_strips)
        return None, query, keys.sum(0), of_rows, columns.sum(0), values


class _Tiles:
    """Tiles of rows, complete and without excluded pairs."""

    def __init__(self, indices: Any, factors: tuple[Tensor, ...]) -> None:
        self.query, self.key, self._of_rows, self._of_columns, values = (each.detach() for each in factors)
        self._indices, self._values = indices, values.numpy()
        num_rows, num_columns = len(self.query), max(len(self.key), 1)
        self._tile_rows = max(TILE_SCORES // num_columns, 1)
        self.num_strips = max(min(_STRIPS, _STRIP_ROWS // num_columns, -(-num_rows // self._tile_rows)), 1)

    def of_strip(self, strip: int) -> Any:
        """Yield rows and scores, in the same memory, of the tiles of a strip."""
        first, last = (len(self.query) * each // self.num_strips for each in (strip, strip + 1))
        buffer = self.query.new_empty(self._tile_rows, len(self.key))
        for begin in range(first, last, self._tile_rows):
            rows = slice(begin, min(begin + self._tile_rows, last))
            tile = buffer[: rows.stop - begin]
            torch.addmm(self._of_columns, self.query[rows], self.key.T, out=tile)
            tile += self._of_rows[rows, None]
            arrays: Any = tile.numpy(), begin, *self._indices, self._values
            _complete(*arrays)
            yield rows, tile


@cached_njit
def _complete(tile: Any, first_row: int, ptr: Any, col: Any, excluded_ptr: Any, excluded_col: Any, values: Any) -> None:
    """Add the values of pairs and leave out excluded ones."""
    for i in range(len(tile)):
        row = first_row + i
        for k in range(ptr[row], ptr[row + 1]):
            tile[i, col[k]] += values[k]
        for k in range(excluded_ptr[row], excluded_ptr[row + 1]):
            tile[i, excluded_col[k]] = -np.inf


@cached_njit
def _read_values(tile: Any, first_row: int, ptr: Any, col: Any, values: Any) -> None:
    for i in range(len(tile)):
        for k in range(ptr[first_row + i], ptr[first_row + i + 1]):
            values[k] = tile[i, col[k]]
