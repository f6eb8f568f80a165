"""The last step of a node's answer: a linear map of what is positive in its embedding."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops.triton import precision
from strobe.ops.triton.kernel import multiprocessors, padded
from strobe.ops.triton.kernels.readout import readout_backward, readout_backward_few, readout_forward

MOST_WIDTH, MOST_ANSWERS = 128, 64
"""Columns of rows and of answers that the kernels are made for."""

FEW = 4
"""Answers up to which the kernels are plain arithmetic."""

ELEMENTS, WARPS, PROGRAMS = 2048, 4, 8
"""Of a tile, warps that run it, programs a multiprocessor on the way back."""


def fits(width: int, answers: int) -> bool:
    """Whether the kernels are made for this many columns."""
    return width <= MOST_WIDTH and answers <= MOST_ANSWERS


def readout(z: Tensor, weight: Tensor, bias: Tensor, rows: Tensor | None) -> Tensor:
    """The same as ``strobe.ops.readout.readout``; rows are distinct."""
    said: Tensor = _Readout.apply(z, weight, bias, rows)  # type: ignore[no-untyped-call]
    return said


class _Readout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, weight: Tensor, bias: Tensor, rows: Tensor | None) -> Tensor:
        z, rows = z.contiguous(), None if rows is None else rows.contiguous()
        count = len(z) if rows is None else len(rows)
        y = z.new_empty(count, len(weight))
        ctx.options = {"width": z.shape[1], "wp": padded(z.shape[1]), "answers": len(weight), "ap": padded(len(weight))}
        rows_of_tile = ELEMENTS // ctx.options["wp"]
        ctx.options |= {"rows": rows_of_tile, "num_warps": WARPS, "precision": precision()}
        if count:
            given = _padded(weight, bias, ctx.options["wp"], ctx.options["ap"])
            few = len(weight) <= FEW
            readout_forward[(triton.cdiv(count, rows_of_tile),)](z, *given, rows, y, count, few=few, **ctx.options)
        ctx.save_for_backward(z, weight, bias, rows)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        z, weight, bias, rows = ctx.saved_tensors
        d_y, (wp, ap) = grads[0].contiguous(), (ctx.options["wp"], ctx.options["ap"])
        d_z = torch.empty_like(z) if rows is None else torch.zeros_like(z)
        tiles = triton.cdiv(len(d_y), ctx.options["rows"])
        programs = max(1, min(tiles, PROGRAMS * multiprocessors(z.device)))
        sums = z.new_zeros(programs, wp + 1, ap, dtype=torch.float32)
        given = _padded(weight, bias, wp, ap)[0]
        kernel = readout_backward_few if len(weight) <= FEW else readout_backward
        kernel[(programs,)](z, given, rows, d_y, d_z, sums, len(d_y), tiles, **ctx.options)
        total = sums.sum(0, dtype=torch.float64)[:, : len(weight)]
        return d_z, total[: z.shape[1]].t().to(weight.dtype), total[wp].to(bias.dtype), None


def _padded(weight: Tensor, bias: Tensor, wp: int, ap: int) -> tuple[Tensor, Tensor]:
    wide = weight.new_zeros(wp + 1, ap, dtype=torch.float32)
    wide[: weight.shape[1], : len(weight)] = weight.t()
    wide[wp, : len(weight)] = bias
    return wide[:wp], wide[wp]
