"""Linear maps and feed-forward layers of many rows with few columns: rows are read once, and weights stay on chip.

Backward is one pass. Each of a fixed number of programs sums the weight gradients of its tiles in order, so results are
deterministic. A feed-forward layer saves its inputs only; the gradient of its second residual is that of the result.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops.triton import Precision, precision
from strobe.ops.triton.kernel import num_multiprocessors, padded_width
from strobe.ops.triton.kernels.dense import (
    feed_forward_backward,
    feed_forward_forward,
    linear_backward,
    linear_forward,
)

MAX_COLUMNS, MAX_WEIGHTS = 128, 4096
"""Maximum columns and (padded) weights that fit into registers."""

ROWS, FEWER_ROWS, WARPS = 64, 16, 4
"""Rows and warps of a tile; fewer rows in backward if registers are short."""

MAX_LAYER_COLUMNS, NARROW = 64, 32
"""Maximum columns of a feed-forward layer that fit into registers, and for full tiles in its backward."""

STAGES, PROGRAMS = 2, 8
"""Backward: pipeline stages, and programs per multiprocessor, several times those resident, for load balance."""


def fits(inputs: int, outputs: int) -> bool:
    """Whether kernels support this many columns."""
    return max(inputs, outputs) <= MAX_COLUMNS and padded_width(inputs) * padded_width(outputs) <= MAX_WEIGHTS


def backward_rows(exact: Precision, *, narrow: bool = True) -> int:
    """Rows of a tile in backward: fewer if exact products or wide matrices fill the registers."""
    return ROWS if exact == "tf32" and narrow else FEWER_ROWS


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool) -> Tensor:
    """``strobe.ops.dense.linear.linear`` on a GPU."""
    out: Tensor = _Linear.apply(x, weight, bias, relu)  # type: ignore[no-untyped-call]
    return out


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        outputs, inputs = weight.shape
        y = x.new_empty(len(x), outputs)
        sizes = {"inputs": inputs, "ip": padded_width(inputs), "outputs": outputs, "op": padded_width(outputs)}
        ctx.options = sizes | {"num_warps": WARPS, "precision": precision()}
        if len(x):
            tiles = triton.cdiv(len(x), ROWS)
            arguments = (x, weight, None if bias is None else bias.contiguous(), y, len(x))
            linear_forward[(tiles,)](*arguments, rows=ROWS, relu=relu, **ctx.options)
        ctx.bias_dtype = None if bias is None else bias.dtype
        ctx.save_for_backward(x, weight, y if relu else None)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, weight, y = ctx.saved_tensors
        d_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        ip, op = ctx.options["ip"], ctx.options["op"]
        rows = backward_rows(ctx.options["precision"])
        tiles = triton.cdiv(len(x), rows)
        programs = max(1, min(tiles, PROGRAMS * num_multiprocessors(x.device)))
        sums = x.new_empty(programs, ip + 1, op, dtype=torch.float32)
        linear_backward[(programs,)](
            x, weight, y, grads[0].contiguous(), d_x, sums, len(x), tiles,
            rows=rows, stages=STAGES, **ctx.options,
        )  # fmt: skip
        outputs, inputs = weight.shape
        total = sums.sum(0, dtype=torch.float64)[:, :outputs]
        d_bias = None if ctx.bias_dtype is None else total[ip].to(ctx.bias_dtype)
        return d_x, total[:inputs].t().to(weight.dtype), d_bias, None


def fits_feed_forward(width: int) -> bool:
    """Whether kernels support this many columns."""
    return width <= MAX_LAYER_COLUMNS


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
