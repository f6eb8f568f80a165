"""Readout of rows multiplied by a matrix per snapshot, without storing the product.

Forward saves the inputs only. In backward each of a fixed number of programs sums the gradients of its tiles of a
snapshot in order, so results are deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops.triton import linear, precision
from strobe.ops.triton.kernel import num_multiprocessors, padded_width
from strobe.ops.triton.kernels.dense import segment_readout_backward, segment_readout_forward
from strobe.ops.triton.linear import PROGRAMS, ROWS, STAGES, WARPS, backward_rows
from strobe.ops.triton.readout import FEW, pad_weights

MAX_SNAPSHOTS = 65_535
"""Maximum of the second grid dimension."""

NARROW = 1024
"""Maximum padded elements of a matrix for full tiles in backward."""


def fits(snapshots: int, inputs: int, outputs: int, num_outputs: int) -> bool:
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
        ctx.options = sizes | {"num_warps": WARPS, "precision": precision()}
        ctx.most = max((stop - start for start, stop in pairwise(ptr)), default=0)
        y, cuts = x.new_empty(len(x), len(weight)), torch.tensor(ptr, device=x.device)
        if len(x):
            grid = triton.cdiv(ctx.most, ROWS), snapshots
            arguments = (x, matrices, *pad_weights(weight, bias), cuts, y)
            segment_readout_forward[grid](*arguments, rows=ROWS, **ctx.options)
        ctx.save_for_backward(x, matrices, weight, bias, cuts)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, matrices, weight, bias, cuts = ctx.saved_tensors
        d_y, d_x = grads[0].contiguous(), torch.empty_like(x) if ctx.needs_input_grad[0] else None
        ip, op, (snapshots, inputs, outputs) = ctx.options["ip"], ctx.options["op"], matrices.shape
        share = PROGRAMS * num_multiprocessors(x.device) // max(snapshots, 1)
        rows = backward_rows(ctx.options["precision"], narrow=ip * op <= NARROW)
        programs = max(1, min(triton.cdiv(ctx.most, rows), share))
        of_matrices = x.new_empty(snapshots, programs, ip, op, dtype=torch.float32)
        of_weight = x.new_empty(snapshots * programs, len(weight), op, dtype=torch.float32)
        if snapshots:
            segment_readout_backward[programs, snapshots](
                x, matrices, pad_weights(weight, bias)[0], cuts, d_y, d_x, of_matrices, of_weight,
                rows=rows, stages=STAGES, **ctx.options,
            )  # fmt: skip
        d_matrices = of_matrices.sum(1, dtype=torch.float64)[:, :inputs, :outputs].to(matrices.dtype)
        d_weight = of_weight.sum(0, dtype=torch.float64)[:, :outputs].to(weight.dtype)
        return d_x, d_matrices, None, d_weight, d_y.sum(0, dtype=torch.float64).to(bias.dtype)
