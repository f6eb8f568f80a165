"""Feed-forward layer with residual inputs in one kernel: every row is read and written once.

Forward saves the inputs only. The gradient of the second residual is that of the result, without a copy; weight
gradients are summed deterministically, as in ``linear``.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops.triton import precision
from strobe.ops.triton.kernel import num_multiprocessors, padded_width
from strobe.ops.triton.kernels.dense import feed_forward_backward, feed_forward_forward
from strobe.ops.triton.linear import PROGRAMS, ROWS, STAGES, WARPS, backward_rows

MAX_COLUMNS, NARROW = 64, 32
"""Maximum columns that fit into registers, and for full tiles in backward."""


def fits(width: int) -> bool:
    """Whether kernels support this many columns."""
    return width <= MAX_COLUMNS


def feed_forward(y: Tensor, x: Tensor, weight: Tensor, bias: Tensor, shift: Tensor | None) -> Tensor:
    """``strobe.ops.dense.linear.feed_forward`` on a GPU."""
    out: Tensor = _FeedForward.apply(y, x, weight, bias, shift)  # type: ignore[no-untyped-call]
    return out


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, x: Tensor, weight: Tensor, bias: Tensor, shift: Tensor | None) -> Tensor:
        y, x, weight, bias = (each.contiguous() for each in (y, x, weight, bias))
        out = torch.empty_like(y, dtype=torch.promote_types(y.dtype, x.dtype))
        width = y.shape[1]
        ctx.options = {"width": width, "wp": padded_width(width), "num_warps": WARPS, "precision": precision()}
        if len(y):
            arguments = (y, x, weight, bias, None if shift is None else shift.contiguous(), out, len(y))
            feed_forward_forward[(triton.cdiv(len(y), ROWS),)](*arguments, rows=ROWS, **ctx.options)
        ctx.dtypes = x.dtype, None if shift is None else shift.dtype
        ctx.save_for_backward(y, weight, bias)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        y, weight, bias = ctx.saved_tensors
        d_out, d_y, wp, width = grads[0].contiguous(), torch.empty_like(y), ctx.options["wp"], y.shape[1]
        rows = backward_rows(ctx.options["precision"], narrow=wp <= NARROW)
        tiles = triton.cdiv(len(y), rows)
        programs = max(1, min(tiles, PROGRAMS * num_multiprocessors(y.device)))
        sums = y.new_empty(programs, wp + 2, wp, dtype=torch.float32)
        options = ctx.options | {"rows": rows, "stages": STAGES}
        feed_forward_backward[(programs,)](y, weight, bias, d_out, d_y, sums, len(y), tiles, **options)
        total = sums.sum(0, dtype=torch.float64)[:, :width]
        row_dtype, shift_dtype = ctx.dtypes
        d_shift = None if shift_dtype is None else total[wp + 1].to(shift_dtype)
        return d_y, d_out.to(row_dtype), total[:width].t().to(weight.dtype), total[wp].to(bias.dtype), d_shift
