"""Readout: a linear map of ReLU(embedding), also of rows multiplied by a matrix per snapshot.

Forward saves the inputs only; the product with the matrices is not stored. In backward each of a fixed number of
programs sums the gradients of its tiles in order, so results are deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops.triton import Precision, linear, precision
from strobe.ops.triton.kernel import num_multiprocessors, padded_width
from strobe.ops.triton.kernels.dense import (
    readout_backward,
    readout_backward_few,
    readout_forward,
    segment_readout_backward,
    segment_readout_forward,
)

MAX_WIDTH, MAX_OUTPUTS = 128, 64
"""Maximum columns of rows and outputs."""

FEW = 4
"""Maximum outputs computed without tensor cores."""

ELEMENTS, WARPS, PROGRAMS = 2048, 4, 8
"""Elements and warps of a tile, and programs per multiprocessor in backward."""

MAX_SNAPSHOTS = 65_535
"""Maximum of the second grid dimension."""

NARROW = 1024
"""Maximum padded elements of a matrix per snapshot for full tiles in backward."""


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


def fits_segments(snapshots: int, inputs: int, outputs: int, num_outputs: int) -> bool:
    """Whether kernels support this many snapshots and columns."""
    return snapshots <= MAX_SNAPSHOTS and num_outputs <= FEW and linear.fits(inputs, outputs)


def segment_readout(x: Tensor, matrices: Tensor, ptr: Sequence[int], weight: Tensor, bias: Tensor) -> Tensor:
    """``strobe.ops.dense.segments.segment_readout`` on a GPU."""
    out: Tensor = _SegmentReadout.apply(x, matrices, tuple(ptr), weight, bias)  # type: ignore[no-untyped-call]
    return out


class _SegmentReadout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrices: Tensor, ptr: tuple[int, ...], weight: Tensor, bias: Tensor) -> Tensor:
        x, matrices, (snapshots, inputs, outputs) = x.contiguous(), matrices.contiguous(), matrices.shape
        sizes = {"inputs": inputs, "ip": padded_width(inputs), "outputs": outputs, "op": padded_width(outputs)}
        sizes |= {"answers": len(weight), "ap": padded_width(len(weight))}
        ctx.options = sizes | {"num_warps": linear.WARPS, "precision": precision()}
        ctx.most = max((stop - start for start, stop in pairwise(ptr)), default=0)
        y, cuts = x.new_empty(len(x), len(weight)), torch.tensor(ptr, device=x.device)
        if len(x):
            grid = triton.cdiv(ctx.most, linear.ROWS), snapshots
            arguments = (x, matrices, *pad_weights(weight, bias), cuts, y)
            segment_readout_forward[grid](*arguments, rows=linear.ROWS, **ctx.options)
        ctx.save_for_backward(x, matrices, weight, bias, cuts)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, matrices, weight, bias, cuts = ctx.saved_tensors
        d_y, d_x = grads[0].contiguous(), torch.empty_like(x) if ctx.needs_input_grad[0] else None
        ip, op, (snapshots, inputs, outputs) = ctx.options["ip"], ctx.options["op"], matrices.shape
        share = linear.PROGRAMS * num_multiprocessors(x.device) // max(snapshots, 1)
        rows = linear.backward_rows(ctx.options["precision"], narrow=ip * op <= NARROW)
        programs = max(1, min(triton.cdiv(ctx.most, rows), share))
        of_matrices = x.new_empty(snapshots, programs, ip, op, dtype=torch.float32)
        of_weight = x.new_empty(snapshots * programs, len(weight), op, dtype=torch.float32)
        if snapshots:
            segment_readout_backward[programs, snapshots](
                x, matrices, pad_weights(weight, bias)[0], cuts, d_y, d_x, of_matrices, of_weight,
                rows=rows, stages=linear.STAGES, **ctx.options,
            )  # fmt: skip
        d_matrices = of_matrices.sum(1, dtype=torch.float64)[:, :inputs, :outputs].to(matrices.dtype)
        d_weight = of_weight.sum(0, dtype=torch.float64)[:, :outputs].to(weight.dtype)
        return d_x, d_matrices, None, d_weight, d_y.sum(0, dtype=torch.float64).to(bias.dtype)
