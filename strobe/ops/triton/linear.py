"""Linear maps of many rows of few columns: rows are read once, and weights stay on chip.

On the way back one pass gives gradients of rows and sums of those of weights: each of a fixed number of programs goes
through its share of the tiles, in order, and writes one sum at the end; the same bits always.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops.triton import Precision, precision
from strobe.ops.triton.kernel import multiprocessors, padded
from strobe.ops.triton.kernels.linear import linear_backward, linear_forward

MOST_COLUMNS, MOST_WEIGHTS = 128, 4096
"""Columns on either side, and weights, columns padded, up to which a thread has registers for all that it holds."""

ROWS, FEWER_ROWS, WARPS = 64, 16, 4
"""Of a tile, and warps that run it; fewer on the way back where a thread has no registers for so many."""

STAGES, PROGRAMS = 2, 8
"""On the way back: tiles that are on their way, the one at hand included, and programs a multiprocessor, several times
those that run at once, so that all end together."""


def fits(inputs: int, outputs: int) -> bool:
    """Whether the kernels are made for this many columns."""
    return max(inputs, outputs) <= MOST_COLUMNS and padded(inputs) * padded(outputs) <= MOST_WEIGHTS


def backward_rows(exact: Precision, *, narrow: bool = True) -> int:
    """Rows of a tile on the way back. Exact products, and what is wide in other kernels, fill a thread's registers."""
    return ROWS if exact == "tf32" and narrow else FEWER_ROWS


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool) -> Tensor:
    """The same as ``strobe.ops.linear.linear``."""
    out: Tensor = _OnChip.apply(x, weight, bias, relu)  # type: ignore[no-untyped-call]
    return out


class _OnChip(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        outputs, inputs = weight.shape
        y = x.new_empty(len(x), outputs)
        sizes = {"inputs": inputs, "ip": padded(inputs), "outputs": outputs, "op": padded(outputs)}
        ctx.options = sizes | {"num_warps": WARPS, "precision": precision()}
        if len(x):
            tiles = triton.cdiv(len(x), ROWS)
            given = (x, weight, None if bias is None else bias.contiguous(), y, len(x))
            linear_forward[(tiles,)](*given, rows=ROWS, relu=relu, **ctx.options)
        ctx.kind = None if bias is None else bias.dtype
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
        programs = max(1, min(tiles, PROGRAMS * multiprocessors(x.device)))
        sums = x.new_empty(programs, ip + 1, op, dtype=torch.float32)
        linear_backward[(programs,)](
            x, weight, y, grads[0].contiguous(), d_x, sums, len(x), tiles,
            rows=rows, stages=STAGES, **ctx.options,
        )  # fmt: skip
        outputs, inputs = weight.shape
        total = sums.sum(0, dtype=torch.float64)[:, :outputs]
        d_bias = None if ctx.kind is None else total[ip].to(ctx.kind)
        return d_x, total[:inputs].t().to(weight.dtype), d_bias, None
