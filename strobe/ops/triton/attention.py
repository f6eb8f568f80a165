"""Graph attention in one pass over the entries; nothing is stored per entry."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops.sparse.spmm import Sparse
from strobe.ops.triton.kernels.sparse import attend_backward_in, attend_backward_out, attend_rows, join_means
from strobe.ops.triton.row_chunks import RowPieces
from strobe.ops.triton.spmm import join

ELEMENTS, WARPS, AHEAD = 512, 1, 2
"""Elements and warps of a tile, and entries loaded at a time."""


def attend(matrix: Sparse, a_in: Tensor, a_out: Tensor, v: Tensor, slope: float) -> Tensor:
    """``strobe.ops.sparse.attention.attend`` on a GPU."""
    out: Tensor = _Attend.apply(matrix, slope, a_in, a_out, v)  # type: ignore[no-untyped-call]
    return out


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Sparse, slope: float, a_in: Tensor, a_out: Tensor, v: Tensor) -> Tensor:
        a_in, a_out, v = (tensor.detach().contiguous() for tensor in (a_in, a_out, v))
        rows, sizes = RowPieces.of(matrix), _padded_sizes(a_in, v)
        out, norm = rows.allocate_output(v, v.shape[1]), rows.allocate_output(a_in.float(), a_in.shape[1])
        _launch(attend_rows, rows, matrix, sizes, slope, a_in, a_out, v, out, norm)
        if rows.num_cut:
            pieces = max(1, 1024 // (sizes["hp"] * sizes["dp"]))
            join_means[(len(rows.long),)](out, norm, rows.long, rows.cuts, rows.num_rows, pieces=pieces, **sizes)
        out, norm = out[: rows.num_rows], norm[: rows.num_rows]
        ctx.matrix, ctx.slope = matrix, slope
        ctx.save_for_backward(a_in, a_out, v, out, norm)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        a_in, a_out, v, out, norm = ctx.saved_tensors
        sizes, heads, d_out = _padded_sizes(a_in, v), a_in.shape[1], grads[0].contiguous()
        mean_grad = (d_out.float() * out.float()).unflatten(1, (heads, -1)).sum(2)
        saved = (a_in, a_out, v, norm, d_out, mean_grad)
        d_in = d_a_out = d_v = None
        if ctx.needs_input_grad[2]:
            rows = RowPieces.of(ctx.matrix)
            d_in = rows.allocate_output(a_in, heads)
            _launch(attend_backward_in, rows, ctx.matrix, sizes, ctx.slope, *saved, d_in)
            join(rows, d_in)
            d_in = d_in[: rows.num_rows]
        if ctx.needs_input_grad[3] or ctx.needs_input_grad[4]:
            transposed = ctx.matrix.transposed
            rows = RowPieces.of(transposed)
            d_a_out, d_v = rows.allocate_output(a_out, heads), rows.allocate_output(v, v.shape[1])
            _launch(attend_backward_out, rows, transposed, sizes, ctx.slope, *saved, d_a_out, d_v)
            join(rows, d_a_out)
            join(rows, d_v)
            d_a_out, d_v = d_a_out[: rows.num_rows], d_v[: rows.num_rows]
        return None, None, d_in, d_a_out, d_v


def _padded_sizes(a_in: Tensor, v: Tensor) -> dict[str, int]:
    heads, depth = a_in.shape[1], v.shape[1] // a_in.shape[1]
    hp, dp = (int(triton.next_power_of_2(size)) for size in (heads, depth))
    return {"heads": heads, "hp": hp, "depth": depth, "dp": dp}


def _launch(
    kernel: Any, rows: RowPieces, matrix: Sparse, sizes: dict[str, int], slope: float, *tensors: Tensor
) -> None:
    if not rows.num_pieces:
        return
    tile = max(1, min(ELEMENTS // (sizes["hp"] * sizes["dp"]), 64))
    kernel[(triton.cdiv(rows.num_pieces, tile),)](
        rows.start, rows.length, rows.row, matrix.col, *tensors, rows.num_pieces, rows.num_cut, rows.num_rows,
        slope=float(slope), rows=tile, ahead=AHEAD, num_warps=WARPS, **sizes,
    )  # fmt: skip
