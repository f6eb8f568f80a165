"""Linear maps of many rows, a tile at a time in backward: nothing of the rows' size is made but the results.

On a GPU, up to some columns, kernels: torch's products of many rows with few columns are much slower than memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops import triton
from strobe.ops.memory import empty
from strobe.ops.narrow import is_narrow
from strobe.ops.threads import run_parts

TILE_ROWS = 4096
GROUPS = 8
"""Sums over tiles are kept apart in this many groups and joined in order: the same bits on any number of threads."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, relu: bool = False) -> Tensor:
    """x Wᵀ + b, [C, B] from [C, A], or what is positive of it."""
    x = _stored(x)
    if triton.usable(x):
        from strobe.ops.triton import linear as kernels

        if kernels.fits(x.shape[1], len(weight)):
            return kernels.linear(x, weight, bias, relu=relu)
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    if x.device.type != "cpu" or is_narrow(x):  # as torch does it where it rounds
        return linear_reference(x, weight, bias, relu=relu)
    out: Tensor = _Linear.apply(x, weight, bias, relu)  # type: ignore[no-untyped-call]
    return out


def _stored(x: Tensor) -> Tensor:
    """Rows as torch would multiply them: in 16 bits where it was told so."""
    place = x.device.type
    return x.to(torch.get_autocast_dtype(place)) if torch.is_autocast_enabled(place) else x


def linear_reference(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, relu: bool = False) -> Tensor:
    """The same as torch has it."""
    out = torch.nn.functional.linear(x, weight, bias)
    return torch.relu(out) if relu else out


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        out = torch.addmm(bias, x, weight.t(), out=empty(x, len(x), len(weight)))
        if relu:
            out.relu_()
        ctx.save_for_backward(x, weight, out if relu else None)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, weight, out = ctx.saved_tensors
        tiles = range(0, len(x), TILE_ROWS)
        groups = min(GROUPS, len(tiles))
        sums = weight.new_zeros(groups, weight.shape[0], weight.shape[1] + 1)
        d_x = empty(x, *x.shape) if ctx.needs_input_grad[0] else None

        def walk(group: int) -> None:
            d_weight, d_bias = sums[group, :, :-1], sums[group, :, -1]
            for start in tiles[group::groups]:
                rows = slice(start, start + TILE_ROWS)
                passed = grads[0][rows]
                if out is not None:
                    passed = torch.ops.aten.threshold_backward(passed, out[rows], 0)
                d_weight.addmm_(passed.t(), x[rows])
                d_bias.add_(passed.sum(0))
                if d_x is not None:
                    torch.mm(passed, weight, out=d_x[rows])

        run_parts(walk, groups)
        total = sums.sum(0)
        return d_x, total[:, :-1], total[:, -1], None
