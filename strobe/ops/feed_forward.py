"""A feed-forward layer on every row, whose input, and rows beside it, are added to its result."""

from __future__ import annotations

import torch
from torch import Tensor

from strobe.ops import triton


def feed_forward(y: Tensor, x: Tensor, weight: Tensor, bias: Tensor, shift: Tensor | None = None) -> Tensor:
    """y + relu(y Wᵀ + b) + x + shift, all rows [C, W], shift [W].

    On a GPU, up to some columns, one kernel, which keeps nothing but y; elsewhere plain torch.
    """
    if triton.usable(y) and triton.usable(x):
        from strobe.ops.triton import feed_forward as kernels

        if kernels.fits(y.shape[1]):
            return kernels.feed_forward(y, x, weight, bias, shift)
    return feed_forward_reference(y, x, weight, bias, shift)


def feed_forward_reference(y: Tensor, x: Tensor, weight: Tensor, bias: Tensor, shift: Tensor | None = None) -> Tensor:
    """The same as torch has it."""
    y = y + torch.relu(torch.nn.functional.linear(y, weight, bias))
    return y + (x if shift is None else x + shift)
