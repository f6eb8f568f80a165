"""Batch normalization per snapshot, by chunks of rows that stay in cache, on one rank or synchronized over ranks."""

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
from strobe.ops.dense.segments import segment_norm
from strobe.ops.runtime.buffers import empty
from strobe.ops.runtime.parallel import run_ranges

CHUNK_ROWS = 1024
"""Sums are per chunk, so results are bit-identical on any number of threads."""


AllReduce = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class SyncGroup:
    """Ranks that share snapshots. ``num_rows`` [T, 1] counts the rows of all ranks; ``token`` requires a gradient, so
    that every rank takes part in backward."""

    all_reduce: AllReduce
    num_rows: Tensor
    token: Tensor


def snapshot_norm(
    x: Tensor, scale: Tensor, shift: Tensor, eps: float, ptr: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``segment_norm`` by native kernels: rows, then means and variances of snapshots."""
    if not native.usable(x, scale, shift):
        return segment_norm(x, scale, shift, eps, ptr)
    chunks = _Chunks.of(tuple(ptr), CHUNK_ROWS)
    out, means, variances, _ = _SnapshotNorm.apply(x, scale, shift, eps, chunks, None, None)  # type: ignore[no-untyped-call]
    return out, means, variances


def sync_snapshot_norm(
    group: SyncGroup, x: Tensor, scale: Tensor, shift: Tensor, eps: float, ptr: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``snapshot_norm`` with moments over the rows of all ranks; also returns a token. Needs native kernels.

    Means and variances are summed in double precision.
    """
    chunks = _Chunks.of(tuple(ptr), CHUNK_ROWS)
    result: tuple[Tensor, Tensor, Tensor, Tensor]
    result = _SnapshotNorm.apply(x, scale, shift, eps, chunks, group, group.token)  # type: ignore[no-untyped-call]
    return result


class _Chunks:
    """First row of each chunk [K + 1], its snapshot [K], and chunks and rows per snapshot [T], [T, 1]."""

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
        """Cached chunks: all layers and epochs use the same."""
        return _Chunks(ptr, rows)

    def run(self, kernel: str, width: int, *args: Any) -> None:
        """Call a kernel on ranges of chunks."""
        run_ranges(lambda first, end: native.call(kernel, first, end, width, *args), len(self.which))

    def total(self, sums: Tensor) -> Tensor:
        """Sum chunks to snapshots [T, F], in double precision."""
        return torch.segment_reduce(sums.double(), "sum", lengths=self.num_chunks, axis=0, unsafe=True, initial=0.0)


class _SnapshotNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        scale: Tensor,
        shift: Tensor,
        eps: float,
        chunks: _Chunks,
        group: SyncGroup | None,
        token: Tensor | None,
    ) -> Any:
        num_rows, summed = (chunks.num_rows, _no_reduce) if group is None else (group.num_rows, group.all_reduce)
        x, width = x.contiguous(), x.shape[1]
        means, squares = x.new_empty(2, len(chunks.which), width)
        chunks.run("chunk_moments", width, chunks.starts, x, means, squares)
        some = num_rows.clamp(min=1)
        mean = summed(chunks.total(means.double() * chunks.rows_of)) / some
        offset = means - mean[chunks.which]
        spread = summed(chunks.total(squares + chunks.rows_of * offset * offset))
        inverse = (spread / some + eps).rsqrt()
        variance = (spread / torch.where(num_rows == 0, 1, num_rows - 1)).to(x.dtype)
        mean = mean.to(x.dtype)
        out, factor = empty(x, *x.shape), (inverse * scale).to(x.dtype)
        chunks.run("chunk_standardise", width, chunks.starts, chunks.which, x, mean, factor, shift.contiguous(), out)
        ctx.chunks, ctx.some, ctx.summed = chunks, some, summed
        ctx.save_for_backward(x, mean, factor, inverse)
        ctx.mark_non_differentiable(mean, variance)
        return out, mean, variance, x.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, mean, factor, inverse = ctx.saved_tensors
        chunks, width, grad = ctx.chunks, x.shape[1], grads[0].contiguous()
        sums, products = x.new_empty(2, len(chunks.which), width)
        chunks.run("chunk_products", width, chunks.starts, chunks.which, x, mean, grad, sums, products)
        total, product = chunks.total(sums), chunks.total(products)
        all_sums, all_products = ctx.summed(torch.stack([total, product]))
        mean_grad = (all_sums / ctx.some).to(x.dtype)
        slope = (all_products * inverse.square() / ctx.some).to(x.dtype)
        d_x = empty(x, *x.shape)
        factors = (mean, factor, mean_grad, slope)
        chunks.run("chunk_standardise_backward", width, chunks.starts, chunks.which, x, *factors, grad, d_x)
        d_scale, d_shift = (product * inverse).sum(0).to(x.dtype), total.sum(0).to(x.dtype)
        return d_x, d_scale, d_shift, None, None, None, None


def _no_reduce(sums: Tensor) -> Tensor:
    return sums
