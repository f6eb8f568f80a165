"""Scores of listed pairs: products of a row of each of two tables, with gradients of both.

No row per pair is in memory: forward reads both rows of a pair and writes its score; backward reads, for each row of a
table, the rows that it is paired with. Floor: two rows of H numbers read per pair forward, and as many backward.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from strobe.ops import native
from strobe.ops.runtime.parallel import run_ranges
from strobe.ops.sparse.csr_kernels import sort_by_row

_PART_PAIRS = 1 << 13
_PART_ROWS = 1 << 10
_CHUNK_PAIRS = 1 << 18
"""Pairs whose rows are in memory at a time without a kernel."""


class Products(NamedTuple):
    """Tables: the score of pair (r, c) is ``query[r] · key[c] + of_rows[r] + of_columns[c]``.

    Args:
        query: [S, H].
        key: [D, H].
        of_rows: [S].
        of_columns: [D].
    """

    query: Tensor
    key: Tensor
    of_rows: Tensor
    of_columns: Tensor


def pair_products(tables: Products, row: Tensor, column: Tensor) -> Tensor:
    """Scores of pairs, [n].

    Args:
        tables: on one device, in one precision.
        row: row of each pair, [n], int32.
        column: column of each pair, [n], int32.
    """
    scores: Tensor = _PairProducts.apply(row, column, *tables)  # type: ignore[no-untyped-call]
    return scores


def pair_products_plain(tables: Products, row: Tensor, column: Tensor) -> Tensor:
    """``pair_products`` in torch, with two rows per pair in memory."""
    query, key = tables.query[row.long()], tables.key[column.long()]
    scores: Tensor = (query * key).sum(1) + tables.of_rows[row.long()] + tables.of_columns[column.long()]
    return scores


class _PairProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, row: Tensor, column: Tensor, *tables: Tensor) -> Tensor:
        ctx.save_for_backward(row, column, *tables[:2])
        query, key, of_rows, of_columns = (each.contiguous() for each in tables)
        scores = query.new_empty(len(row))
        if not native.usable(query, key, of_rows, of_columns):
            for here in _chunks(len(row)):
                r, c = row[here], column[here]
                products = (query.index_select(0, r) * key.index_select(0, c)).sum(1)
                scores[here] = products + of_rows.index_select(0, r) + of_columns.index_select(0, c)
            return scores

        def run(first: int, last: int) -> None:
            arrays = row, column, query, key, of_rows, of_columns
            native.call("pair_scores", first, last, query.shape[1], *arrays, scores)

        run_ranges(run, len(row), _PART_PAIRS)
        return scores

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        row, column, query, key = ctx.saved_tensors
        query, key, gradient = query.contiguous(), key.contiguous(), gradient.contiguous()
        compute = _gradients_of_rows if native.usable(query, key, gradient) else _gradients_in_chunks
        of_query, of_rows = compute(len(query), row, column, gradient, key)
        of_key, of_columns = compute(len(key), column, row, gradient, query)
        return None, None, of_query, of_key, of_rows, of_columns


def _chunks(size: int) -> list[slice]:
    return [slice(first, first + _CHUNK_PAIRS) for first in range(0, size, _CHUNK_PAIRS)]


def _gradients_in_chunks(
    num_rows: int, row: Tensor, other: Tensor, gradient: Tensor, table: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the rows of a table and of their numbers, given the rows of the other table, on any device."""
    of_rows, of_numbers = table.new_zeros(num_rows, table.shape[1]), table.new_zeros(num_rows)
    for here in _chunks(len(row)):
        g = gradient[here]
        of_rows.index_add_(0, row[here], g[:, None] * table.index_select(0, other[here]))
        of_numbers.index_add_(0, row[here], g)
    return of_rows, of_numbers


def _gradients_of_rows(
    num_rows: int, row: Tensor, other: Tensor, gradient: Tensor, table: Tensor
) -> tuple[Tensor, Tensor]:
    """``_gradients_in_chunks``, row by row: sums do not depend on the number of threads."""
    of_rows, of_numbers = table.new_empty(num_rows, table.shape[1]), table.new_empty(num_rows)
    ptr, pairs = (torch.from_numpy(each) for each in sort_by_row(row.numpy(), num_rows))

    def run(first: int, last: int) -> None:
        arrays = ptr, pairs, other, gradient, table
        native.call("pair_gradient", first, last, table.shape[1], *arrays, of_rows, of_numbers)

    run_ranges(run, num_rows, _PART_ROWS)
    return of_rows, of_numbers
