"""Sparse matrix times dense rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from strobe.ops.corners import Corner
from strobe.ops.sparse import Sparse
from strobe.ops.triton.kernel import power_of_two
from strobe.ops.triton.kernels.rows import join_sums, spmm_rows
from strobe.ops.triton.rows import Rows


@dataclass(frozen=True)
class Shape:
    """Elements of a tile, warps that run it, entries whose loads are under way together, the most rows of it."""

    elements: int = 1024
    warps: int = 4
    ahead: int = 2
    most_rows: int = 128


SHAPE = Shape()

LONGEST = 32
"""Entries of a row that one thread, or few, may add one after the other while others wait."""


def product(matrix: Sparse, x: Tensor) -> Tensor:
    """matrix @ x."""
    return multiply(Rows.of(matrix, LONGEST), matrix.col, matrix.weight, x)


def diagonal_product(corners: Sequence[Corner], x: Tensor) -> Tensor:
    """The product of corners along a diagonal with x: of each where it stands, into its rows of the result."""
    out = x.new_empty(sum(corner.num_rows for corner in corners), x.shape[1])
    first = column = 0
    for corner in corners:
        part = x[column : column + corner.num_cols]
        part = part if corner.reads is None else part * corner.reads[:, None]
        into = out[first : first + corner.num_rows]
        multiply(Rows.of(corner, LONGEST), corner.matrix.col, corner.matrix.weight, part, into=into)
        if corner.gives is not None:
            into *= corner.gives[:, None]
        first, column = first + corner.num_rows, column + corner.num_cols
    return out


def multiply(
    rows: Rows, col: Tensor, weight: Tensor | None, x: Tensor, shape: Shape = SHAPE, into: Tensor | None = None
) -> Tensor:
    """The product of the matrix of these rows with x, [R, W], written ``into`` a tensor if there is one."""
    width, chunks = x.shape[1], rows.chunks
    out = x.new_empty(rows.num_rows, width) if into is None else into
    if not rows.num_pieces or not width:
        return out
    wp = power_of_two(width)
    tile = max(1, min(shape.elements // wp, shape.most_rows))
    parts = x.new_empty(chunks.number, width, dtype=torch.float32) if rows.num_cut else None
    programs = chunks.number + -(-(rows.num_pieces - rows.num_cut) // tile)
    spmm_rows[(programs,)](
        rows.start, rows.length, rows.row, chunks.start, chunks.end, chunks.which, rows.long, chunks.cuts,
        chunks.arrived, col, weight, x, parts, out, rows.num_pieces, rows.num_cut, chunks.number,
        width=width, wp=wp, rows=tile, ahead=shape.ahead, num_warps=shape.warps,
    )  # fmt: skip
    return out


def join(rows: Rows, out: Tensor) -> None:
    """Adds the pieces of long rows, which stand after the result, into it."""
    width = out.shape[1]
    wp = power_of_two(width)
    if rows.num_cut:
        join_sums[(len(rows.long),)](
            out, rows.long, rows.cuts, rows.num_rows, width=width, wp=wp, pieces=max(1, 1024 // wp), num_warps=4
        )
