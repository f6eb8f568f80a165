"""Sparse-dense products."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from strobe.ops.sparse.leading_block import LeadingBlock
from strobe.ops.sparse.spmm import Sparse
from strobe.ops.triton.kernel import power_of_two
from strobe.ops.triton.kernels.sparse import join_sums, spmm_rows
from strobe.ops.triton.row_chunks import RowPieces

ELEMENTS, WARPS, AHEAD, MOST_ROWS = 1024, 4, 2, 128
"""Elements and warps of a tile, entries loaded at a time, and maximum rows of a tile."""

LONGEST = 32
"""Maximum entries of a row that one thread adds; longer rows are cut."""


def product(matrix: Sparse, x: Tensor) -> Tensor:
    """matrix @ x."""
    return multiply(RowPieces.of(matrix, LONGEST), matrix.col, matrix.weight, x)


def diagonal_product(blocks: Sequence[LeadingBlock], x: Tensor) -> Tensor:
    """Block-diagonal product of leading blocks with x."""
    out = x.new_empty(sum(block.num_rows for block in blocks), x.shape[1])
    first = column = 0
    for block in blocks:
        part = x[column : column + block.num_cols]
        part = part if block.col_scale is None else part * block.col_scale[:, None]
        into = out[first : first + block.num_rows]
        multiply(RowPieces.of(block, LONGEST), block.matrix.col, block.matrix.weight, part, into=into)
        if block.row_scale is not None:
            into *= block.row_scale[:, None]
        first, column = first + block.num_rows, column + block.num_cols
    return out


def multiply(rows: RowPieces, col: Tensor, weight: Tensor | None, x: Tensor, into: Tensor | None = None) -> Tensor:
    """Product of the matrix of these rows with x, [R, W], written ``into`` a tensor if given."""
    width, chunks = x.shape[1], rows.chunks
    out = x.new_empty(rows.num_rows, width) if into is None else into
    if not rows.num_pieces or not width:
        return out
    wp = power_of_two(width)
    tile = max(1, min(ELEMENTS // wp, MOST_ROWS))
    parts = x.new_empty(chunks.number, width, dtype=torch.float32) if rows.num_cut else None
    programs = chunks.number + -(-(rows.num_pieces - rows.num_cut) // tile)
    spmm_rows[(programs,)](
        rows.start, rows.length, rows.row, chunks.start, chunks.end, chunks.which, rows.long, chunks.cuts,
        chunks.arrived, col, weight, x, parts, out, rows.num_pieces, rows.num_cut, chunks.number,
        width=width, wp=wp, rows=tile, ahead=AHEAD, num_warps=WARPS,
    )  # fmt: skip
    return out


def join(rows: RowPieces, out: Tensor) -> None:
    """Add the pieces of long rows, which follow the result, to it."""
    width = out.shape[1]
    wp = power_of_two(width)
    if rows.num_cut:
        join_sums[(len(rows.long),)](
            out, rows.long, rows.cuts, rows.num_rows, width=width, wp=wp, pieces=max(1, 1024 // wp), num_warps=4
        )
