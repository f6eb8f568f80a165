"""Rows of each snapshot shifted and scaled by its moments, for GPUs: sums of columns, then one pass over the rows.

torch's batch normalisation of matrices with many rows and few columns is many times slower than memory there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def standardise_columns(
    x: Tensor, scale: Tensor, shift: Tensor, eps: float, ptr: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """The same as ``segments.segment_standardise``, which is its reference."""
    found: tuple[Tensor, Tensor, Tensor] = _Columns.apply(x, scale, shift, eps, tuple(ptr))  # type: ignore[no-untyped-call]
    return found


class _Columns(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, eps: float, ptr: tuple[int, ...]) -> Any:
        ctx.rows = [(t, slice(a, b)) for t, (a, b) in enumerate(pairwise(ptr)) if a < b]
        out = torch.empty_like(x)
        means, variances, inverses = x.new_zeros(3, len(ptr) - 1, x.shape[1])
        for t, rows in ctx.rows:
            here, count = x[rows], rows.stop - rows.start
            variance, mean = torch.var_mean(here, 0, correction=0)
            inverse = (variance + eps).rsqrt()
            factor = inverse * scale
            torch.addcmul(shift - mean * factor, here, factor, out=out[rows])
            means[t], inverses[t] = mean, inverse
            variances[t] = variance * (count / (count - 1)) if count > 1 else torch.nan
        ctx.save_for_backward(x, scale, means, inverses)
        ctx.mark_non_differentiable(means, variances)
        return out, means, variances

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, scale, means, inverses = ctx.saved_tensors
        d_x, (d_scale, d_shift) = torch.empty_like(x), x.new_zeros(2, x.shape[1])
        for t, rows in ctx.rows:
            here, grad, count = x[rows], grads[0][rows], rows.stop - rows.start
            mean, inverse = means[t], inverses[t]
            total = grad.sum(0)
            product = ((here - mean) * grad).sum(0) * inverse  # with what was standardised
            slope = scale * inverse * inverse * product / count
            torch.addcmul(mean * slope - scale * inverse * total / count, grad, scale * inverse, out=d_x[rows])
            d_x[rows].addcmul_(here, slope, value=-1)
            d_scale += product
            d_shift += total
        return d_x, d_scale, d_shift, None, None
