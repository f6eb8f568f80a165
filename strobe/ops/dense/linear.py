"""Linear maps of many rows with few columns.

On the CPU backward runs by tiles and allocates nothing but the gradients. On a GPU, up to a limit of columns, Triton
kernels run at memory bandwidth, unlike torch's products.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops import triton
from strobe.ops.dense.bf16 import BF16
from strobe.ops.runtime.buffers import empty
from strobe.ops.runtime.parallel import run_parts

TILE_ROWS = 4096
GROUPS = 8
"""Weight gradients are summed per group of tiles and then in group order: bit-identical on any number of threads."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, relu: bool = False) -> Tensor:
    """Compute x Wᵀ + b, [C, B] from [C, A], with an optional ReLU."""
    x = _autocast_rows(x)
    if triton.usable(x.device, x.dtype) and triton.linear.fits(x.shape[1], len(weight)):
        return triton.linear.linear(x, weight, bias, relu=relu)
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    if x.device.type != "cpu" or x.dtype == BF16:
        return linear_reference(x, weight, bias, relu=relu)
    out: Tensor = _Linear.apply(x, weight, bias, relu)  # type: ignore[no-untyped-call]
    return out


def _autocast_rows(x: Tensor) -> Tensor:
    """Cast rows to the autocast dtype if autocast is enabled."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


def linear_reference(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, relu: bool = False) -> Tensor:
    """``linear`` in plain torch."""
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
                grad = grads[0][rows]
                if out is not None:
                    grad = torch.ops.aten.threshold_backward(grad, out[rows], 0)
                d_weight.addmm_(grad.t(), x[rows])
                d_bias.add_(grad.sum(0))
                if d_x is not None:
                    torch.mm(grad, weight, out=d_x[rows])

        run_parts(walk, groups)
        total = sums.sum(0)
        return d_x, total[:, :-1], total[:, -1], None


def feed_forward(y: Tensor, x: Tensor, weight: Tensor, bias: Tensor, shift: Tensor | None = None) -> Tensor:
    """Compute y + relu(y Wᵀ + b) + x + shift, rows [C, W], shift [W].

    On a GPU, up to a limit of columns, one kernel that saves y only; otherwise plain torch.
    """
    has_kernel = triton.usable(y.device, y.dtype) and triton.usable(x.device, x.dtype)
    if has_kernel and triton.linear.fits_feed_forward(y.shape[1]):
        return triton.linear.feed_forward(y, x, weight, bias, shift)
    return feed_forward_reference(y, x, weight, bias, shift)


def feed_forward_reference(y: Tensor, x: Tensor, weight: Tensor, bias: Tensor, shift: Tensor | None = None) -> Tensor:
    """``feed_forward`` in plain torch."""
    y = y + torch.relu(torch.nn.functional.linear(y, weight, bias))
    return y + (x if shift is None else x + shift)
