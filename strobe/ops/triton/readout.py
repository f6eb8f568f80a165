"""The last step of a node's answer: a linear map of what is positive in its embedding."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops.triton import Precision, precision
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
        ctx.options = _options(z, weight, precision())
        if count:
            grid, few = (triton.cdiv(count, ctx.options["rows"]),), len(weight) <= FEW
            readout_forward[grid](z, *bound(weight, bias), rows, y, count, few=few, **ctx.options)
        ctx.save_for_backward(z, weight, bias, rows)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        z, weight, bias, rows = ctx.saved_tensors
        d_z = torch.empty_like(z) if rows is None else torch.zeros_like(z)
        return d_z, *_back(z, weight, bias, rows, grads[0].contiguous(), d_z, ctx.options), None


def weight_gradients(z: Tensor, weight: Tensor, bias: Tensor, d_y: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of weights and bias alone, of a few answers for all rows."""
    return _back(z, weight, bias, None, d_y, None, _options(z, weight, precision()))


def _back(
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    rows: Tensor | None,
    d_y: Tensor,
    d_z: Tensor | None,
    options: dict[str, Any],
) -> tuple[Tensor, Tensor]:
    """Gradients of weights and bias; those of rows are written into ``d_z``."""
    wp, ap = options["wp"], options["ap"]
    tiles = triton.cdiv(len(d_y), options["rows"])
    programs = max(1, min(tiles, PROGRAMS * multiprocessors(z.device)))
    sums = z.new_zeros(programs, wp + 1, ap, dtype=torch.float32)
    kernel = readout_backward_few if len(weight) <= FEW else readout_backward
    kernel[(programs,)](z, bound(weight, bias)[0], rows, d_y, d_z, sums, len(d_y), tiles, **options)
    total = sums.sum(0, dtype=torch.float64)[:, : len(weight)]
    return total[: z.shape[1]].t().to(weight.dtype), total[wp].to(bias.dtype)


def _options(z: Tensor, weight: Tensor, exact: Precision) -> dict[str, Any]:
    width, answers = z.shape[1], len(weight)
    wp, ap = padded(width), padded(answers)
    sizes = {"width": width, "wp": wp, "answers": answers, "ap": ap, "rows": ELEMENTS // wp}
    return sizes | {"num_warps": WARPS, "precision": exact}


def bound(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Weights as kernels want them, float32 and padded with zeros: [in, out], and the bias [out]."""
    wp, ap = padded(weight.shape[1]), padded(len(weight))
    wide = weight.new_zeros(wp + 1, ap, dtype=torch.float32)
    wide[: weight.shape[1], : len(weight)] = weight.t()
    wide[wp, : len(weight)] = bias
    return wide[:wp], wide[wp]
