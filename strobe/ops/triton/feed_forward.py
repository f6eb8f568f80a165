"""A feed-forward layer whose input, and rows beside it, are added to its result: every row is read and written once.

Forward keeps nothing but its inputs. Back, gradients of the rows beside are those of the result, no copy; sums of
weight gradients are joined as those of ``linear`` are: the same bits always.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops.triton import precision
from strobe.ops.triton.kernel import multiprocessors, padded
from strobe.ops.triton.kernels.feed_forward import feed_forward_backward, feed_forward_forward
from strobe.ops.triton.linear import PROGRAMS, ROWS, STAGES, WARPS, backward_rows

MOST_COLUMNS, NARROW = 64, 32
"""Up to which a thread has registers for all that it holds, of a few rows and of a whole tile of them."""


def fits(width: int) -> bool:
    """Whether the kernels are made for this many columns."""
    return width <= MOST_COLUMNS


def feed_forward(y: Tensor, x: Tensor, weight: Tensor, bias: Tensor, shift: Tensor | None) -> Tensor:
    """The same as ``strobe.ops.feed_forward.feed_forward``."""
    out: Tensor = _FeedForward.apply(y, x, weight, bias, shift)  # type: ignore[no-untyped-call]
    return out


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, x: Tensor, weight: Tensor, bias: Tensor, shift: Tensor | None) -> Tensor:
        y, x, weight, bias = (each.contiguous() for each in (y, x, weight, bias))
        out = torch.empty_like(y, dtype=torch.promote_types(y.dtype, x.dtype))
        width = y.shape[1]
        ctx.options = {"width": width, "wp": padded(width), "num_warps": WARPS, "precision": precision()}
        if len(y):
            given = (y, x, weight, bias, None if shift is None else shift.contiguous(), out, len(y))
            feed_forward_forward[(triton.cdiv(len(y), ROWS),)](*given, rows=ROWS, **ctx.options)
        ctx.kinds = x.dtype, None if shift is None else shift.dtype
        ctx.save_for_backward(y, weight, bias)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        y, weight, bias = ctx.saved_tensors
        d_out, d_y, wp, width = grads[0].contiguous(), torch.empty_like(y), ctx.options["wp"], y.shape[1]
        rows = backward_rows(ctx.options["precision"], narrow=wp <= NARROW)
        tiles = triton.cdiv(len(y), rows)
        programs = max(1, min(tiles, PROGRAMS * multiprocessors(y.device)))
        sums = y.new_empty(programs, wp + 2, wp, dtype=torch.float32)
        options = ctx.options | {"rows": rows, "stages": STAGES}
        feed_forward_backward[(programs,)](y, weight, bias, d_out, d_y, sums, len(y), tiles, **options)
        total = sums.sum(0, dtype=torch.float64)[:, :width]
        of_rows, of_shift = ctx.kinds
        d_shift = None if of_shift is None else total[wp + 1].to(of_shift)
        return d_y, d_out.to(of_rows), total[:width].t().to(weight.dtype), total[wp].to(bias.dtype), d_shift
