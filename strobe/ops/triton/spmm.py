"""Sparse matrix times dense rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import triton
from torch import Tensor

from strobe.ops.corners import Corner
from strobe.ops.sparse import Sparse
from strobe.ops.triton.kernels.rows import join_sums, spmm_rows
from strobe.ops.triton.rows import Rows


@dataclass(frozen=True)
class Shape:
    """Elements of a tile, warps that run it, entries whose loads are under way together, the most rows of it."""

    elements: int = 1024
    warps: int = 4
    ahead: int = 2
    most_rows: int = 128


def product(matrix: Sparse, x: Tensor) -> Tensor:
    """matrix @ x."""
    return multiply(Rows.of(matrix), matrix.col, matrix.weight, x)


def diagonal_product(corners: Sequence[Corner], x: Tensor) -> Tensor:
    """The product of corners along a diagonal with x: of each where it stands, into its rows of the result.

    Pieces of a corner's long rows lie for a while where the results of those after it will be.
    """
    rows = [Rows.of(corner) for corner in corners]
    total = sum(corner.num_rows for corner in corners)
    out = x.new_empty(total + max((each.num_cut for each in rows), default=0), x.shape[1])
    first = column = 0
    for corner, each in zip(corners, rows, strict=True):
        part = x[column : column + corner.num_cols]
        part = part if corner.reads is None else part * corner.reads[:, None]
        multiply(each, corner.matrix.col, corner.matrix.weight, part, into=out[first:])
        if corner.gives is not None:
            out[first : first + corner.num_rows] *= corner.gives[:, None]
        first, column = first + corner.num_rows, column + corner.num_cols
    return out[:total]


def multiply(
    rows: Rows, col: Tensor, weight: Tensor | None, x: Tensor, shape: Shape | None = None, into: Tensor | None = None
) -> Tensor:
    """The product of the matrix of these rows with x, [R, W]; ``into`` has room for it and the pieces of long rows."""
    width = x.shape[1]
    shape = Shape() if shape is None else shape
    out = rows.result(x, width) if into is None else into
    wp = int(triton.next_power_of_2(max(width, 1)))
    tile = max(1, min(shape.elements // wp, shape.most_rows))
    if rows.num_pieces and width:
        spmm_rows[(triton.cdiv(rows.num_pieces, tile),)](
            rows.start, rows.length, rows.row, col, weight, x, out, rows.num_pieces, rows.num_cut, rows.num_rows,
            width=width, wp=wp, rows=tile, ahead=shape.ahead, num_warps=shape.warps,
        )  # fmt: skip
        join(rows, out)
    return out[: rows.num_rows]


def join(rows: Rows, out: Tensor) -> None:
    """Adds the pieces of long rows, which stand after the result, into it."""
    width = out.shape[1]
    wp = int(triton.next_power_of_2(width))
    if rows.num_cut:
        join_sums[(len(rows.long),)](
            out, rows.long, rows.cuts, rows.num_rows, width=width, wp=wp, pieces=max(1, 1024 // wp), num_warps=4
        )
