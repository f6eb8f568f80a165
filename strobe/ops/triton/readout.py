"""Readout: a linear map of ReLU(embedding)."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops.triton import Precision, precision
from strobe.ops.triton.kernel import num_multiprocessors, padded_width
from strobe.ops.triton.kernels.dense import readout_backward, readout_backward_few, readout_forward

MAX_WIDTH, MAX_OUTPUTS = 128, 64
"""Maximum columns of rows and outputs."""

FEW = 4
"""Maximum outputs computed without tensor cores."""

ELEMENTS, WARPS, PROGRAMS = 2048, 4, 8
"""Elements and warps of a tile, and programs per multiprocessor in backward."""


def fits(width: int, outputs: int) -> bool:
    """Whether kernels support this many columns."""
    return width <= MAX_WIDTH and outputs <= MAX_OUTPUTS


def readout(z: Tensor, weight: Tensor, bias: Tensor, rows: Tensor | None) -> Tensor:
    """``strobe.ops.dense.readout.readout`` on a GPU; rows are distinct."""
    out: Tensor = _Readout.apply(z, weight, bias, rows)  # type: ignore[no-untyped-call]
    return out


class _Readout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, weight: Tensor, bias: Tensor, rows: Tensor | None) -> Tensor:
        z, rows = z.contiguous(), None if rows is None else rows.contiguous()
        count = len(z) if rows is None else len(rows)
        y = z.new_empty(count, len(weight))
        ctx.options = _options(z, weight, precision())
        if count:
            grid, few = (triton.cdiv(count, ctx.options["rows"]),), len(weight) <= FEW
            readout_forward[grid](z, *pad_weights(weight, bias), rows, y, count, few=few, **ctx.options)
        ctx.save_for_backward(z, weight, bias, rows)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        z, weight, bias, rows = ctx.saved_tensors
        d_z = torch.empty_like(z) if rows is None else torch.zeros_like(z)
        return d_z, *_run_backward(z, weight, bias, rows, grads[0].contiguous(), d_z, ctx.options), None


def weight_gradients(z: Tensor, weight: Tensor, bias: Tensor, d_y: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of weights and bias only, for few outputs of all rows."""
    return _run_backward(z, weight, bias, None, d_y, None, _options(z, weight, precision()))


def _run_backward(
    z: Tensor,
    weight: Tensor,
    bias: Tensor,
    rows: Tensor | None,
    d_y: Tensor,
    d_z: Tensor | None,
    options: dict[str, Any],
) -> tuple[Tensor, Tensor]:
    """Gradients of weights and bias; row gradients are written to ``d_z``."""
    wp, ap = options["wp"], options["ap"]
    tiles = triton.cdiv(len(d_y), options["rows"])
    programs = max(1, min(tiles, PROGRAMS * num_multiprocessors(z.device)))
    sums = z.new_zeros(programs, wp + 1, ap, dtype=torch.float32)
    kernel = readout_backward_few if len(weight) <= FEW else readout_backward
    kernel[(programs,)](z, pad_weights(weight, bias)[0], rows, d_y, d_z, sums, len(d_y), tiles, **options)
    total = sums.sum(0, dtype=torch.float64)[:, : len(weight)]
    return total[: z.shape[1]].t().to(weight.dtype), total[wp].to(bias.dtype)


def _options(z: Tensor, weight: Tensor, exact: Precision) -> dict[str, Any]:
    width, answers = z.shape[1], len(weight)
    wp, ap = padded_width(width), padded_width(answers)
    sizes = {"width": width, "wp": wp, "answers": answers, "ap": ap, "rows": ELEMENTS // wp}
    return sizes | {"num_warps": WARPS, "precision": exact}


def pad_weights(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Weights as kernels want them, float32 and padded with zeros: [in, out], and the bias [out]."""
    wp, ap = padded_width(weight.shape[1]), padded_width(len(weight))
    wide = weight.new_zeros(wp + 1, ap, dtype=torch.float32)
    wide[: weight.shape[1], : len(weight)] = weight.t()
    wide[wp, : len(weight)] = bias
    return wide[:wp], wide[wp]
