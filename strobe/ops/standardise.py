"""Rows of each snapshot shifted and scaled by its moments, a chunk that stays in cache at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops import native
from strobe.ops.memory import empty
from strobe.ops.segments import segment_standardise
from strobe.ops.threads import run_ranges

CHUNK_ROWS = 1024
"""Sums are of chunks, so that it changes no bits how many cores share them."""


Sum = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Others:
    """Who else has rows of the same snapshots: ``sum`` adds up numbers over all, ``num_rows`` [T, 1] is what all have
    together. ``here`` makes the operation take part in backward."""

    sum: Sum
    num_rows: Tensor
    here: Tensor


def standardise(
    x: Tensor, scale: Tensor, shift: Tensor, eps: float, ptr: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """The same as ``segment_standardise``, which is its reference: rows, then means and variances of snapshots."""
    if not native.usable(x, scale, shift):
        return segment_standardise(x, scale, shift, eps, ptr)
    chunks = _Chunks.of(tuple(ptr), CHUNK_ROWS)
    out, means, variances, _ = _Standardise.apply(x, scale, shift, eps, chunks, None, None)  # type: ignore[no-untyped-call]
    return out, means, variances


def standardise_with(
    others: Others, x: Tensor, scale: Tensor, shift: Tensor, eps: float, ptr: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same by the moments of whole snapshots, of which others have rows, too; and a token. Only where kernels can
    work; means and variances are in double precision."""
    chunks = _Chunks.of(tuple(ptr), CHUNK_ROWS)
    found: tuple[Tensor, Tensor, Tensor, Tensor]
    found = _Standardise.apply(x, scale, shift, eps, chunks, others, others.here)  # type: ignore[no-untyped-call]
    return found


class _Chunks:
    """Where chunks of rows begin [K + 1], of which snapshot each is [K], and how many chunks and rows
    snapshots have [T], [T, 1]."""

    def __init__(self, ptr: tuple[int, ...], rows: int) -> None:
        cuts = [(start, t) for t, (a, b) in enumerate(pairwise(ptr)) for start in range(a, b, rows)]
        self.starts = torch.tensor([*(start for start, _ in cuts), ptr[-1]])
        self.which = torch.tensor([t for _, t in cuts], dtype=torch.int64)
        self.num_chunks = torch.bincount(self.which, minlength=len(ptr) - 1)
        self.num_rows = torch.tensor(ptr).diff()[:, None]
        self.rows_of = self.starts.diff()[:, None]

    @staticmethod
    @lru_cache(maxsize=8)
    def of(ptr: tuple[int, ...], rows: int) -> _Chunks:
        """The chunks of these snapshots; every layer and epoch asks for the same."""
        return _Chunks(ptr, rows)

    def run(self, kernel: str, width: int, *args: Any) -> None:
        """Calls a kernel on ranges of chunks."""
        run_ranges(lambda first, end: native.call(kernel, first, end, width, *args), len(self.which))

    def total(self, sums: Tensor) -> Tensor:
        """Sums of snapshots [T, F] from those of chunks, in double precision."""
        return torch.segment_reduce(sums.double(), "sum", lengths=self.num_chunks, axis=0, unsafe=True, initial=0.0)


class _Standardise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        scale: Tensor,
        shift: Tensor,
        eps: float,
        chunks: _Chunks,
        others: Others | None,
        here: Tensor | None,
    ) -> Any:
        num_rows, summed = (chunks.num_rows, _alone) if others is None else (others.num_rows, others.sum)
        x, width = x.contiguous(), x.shape[1]
        means, squares = x.new_empty(2, len(chunks.which), width)
        chunks.run("chunk_moments", width, chunks.starts, x, means, squares)
        some = num_rows.clamp(min=1)
        mean = summed(chunks.total(means.double() * chunks.rows_of)) / some
        apart = means - mean[chunks.which]
        spread = summed(chunks.total(squares + chunks.rows_of * apart * apart))
        inverse = (spread / some + eps).rsqrt()
        variance = (spread / torch.where(num_rows == 0, 1, num_rows - 1)).to(x.dtype)
        kept = mean.to(x.dtype)
        out, factor = empty(x, *x.shape), (inverse * scale).to(x.dtype)
        chunks.run("chunk_standardise", width, chunks.starts, chunks.which, x, kept, factor, shift.contiguous(), out)
        ctx.chunks, ctx.some, ctx.summed = chunks, some, summed
        ctx.save_for_backward(x, kept, factor, inverse)
        ctx.mark_non_differentiable(kept, variance)
        return out, kept, variance, x.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, mean, factor, inverse = ctx.saved_tensors
        chunks, width, grad = ctx.chunks, x.shape[1], grads[0].contiguous()
        sums, products = x.new_empty(2, len(chunks.which), width)
        chunks.run("chunk_products", width, chunks.starts, chunks.which, x, mean, grad, sums, products)
        total, product = chunks.total(sums), chunks.total(products)
        all_of_it, all_products = ctx.summed(torch.stack([total, product]))
        mean_grad = (all_of_it / ctx.some).to(x.dtype)
        slope = (all_products * inverse.square() / ctx.some).to(x.dtype)
        d_x = empty(x, *x.shape)
        factors = (mean, factor, mean_grad, slope)
        chunks.run("chunk_standardise_backward", width, chunks.starts, chunks.which, x, *factors, grad, d_x)
        d_scale, d_shift = (product * inverse).sum(0).to(x.dtype), total.sum(0).to(x.dtype)
        return d_x, d_scale, d_shift, None, None, None, None


def _alone(sums: Tensor) -> Tensor:
    return sums
