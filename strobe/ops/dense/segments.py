"""Operations per snapshot: matrix products, normalization, top-k.

Each allocates one result for all cells and nothing else of that size: page faults cost more than the arithmetic.
``ptr`` [T + 1] holds the first row of each snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops import triton
from strobe.ops.dense.bf16 import BF16, run_in_float32
from strobe.ops.dense.readout import readout
from strobe.ops.runtime.buffers import empty
from strobe.ops.runtime.parallel import PartFunction, run_parts

SHARES = 4  # minimum snapshots per core for running one snapshot per core

_batch_norm = torch.ops.aten.native_batch_norm
_batch_norm_backward = torch.ops.aten.native_batch_norm_backward


def segment_matmul(x: Tensor, matrices: Tensor, ptr: Sequence[int]) -> Tensor:
    """Multiply the rows of snapshot t in x [C, A] by matrix t of [T, A, B]: [C, B]."""
    if x.dtype == BF16:
        return run_in_float32(segment_matmul, x, matrices, ptr)
    product: Tensor = _Matmul.apply(x, matrices, tuple(ptr))  # type: ignore[no-untyped-call]
    return product


def segment_readout(x: Tensor, matrices: Tensor, ptr: Sequence[int], weight: Tensor, bias: Tensor) -> Tensor:
    """Compute ``readout(segment_matmul(x, matrices, ptr), weight, bias)``.

    On a GPU the product is not stored if the readout has few outputs.
    """
    snapshots, inputs, outputs = matrices.shape
    if triton.usable(x.device, x.dtype) and triton.readout.fits_segments(snapshots, inputs, outputs, len(weight)):
        return triton.readout.segment_readout(x, matrices, ptr, weight, bias)
    return readout(segment_matmul(x, matrices, ptr), weight, bias)


class _Matmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrices: Tensor, ptr: tuple[int, ...]) -> Tensor:
        ctx.rows = [slice(start, stop) for start, stop in pairwise(ptr)]
        ctx.save_for_backward(x, matrices)
        out = empty(x, len(x), matrices.shape[2])

        def multiply(t: int) -> None:
            torch.mm(x[ctx.rows[t]], matrices[t], out=out[ctx.rows[t]])

        _run_snapshots(multiply, ctx.rows, x)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, matrices = ctx.saved_tensors
        wants_x, wants_matrices, _ = ctx.needs_input_grad
        grad = grads[0].contiguous()
        d_x = empty(x, *x.shape) if wants_x else None
        d_matrices = torch.empty_like(matrices) if wants_matrices else None

        def back(t: int) -> None:
            rows = ctx.rows[t]
            if d_x is not None:
                torch.mm(grad[rows], matrices[t].t(), out=d_x[rows])
            if d_matrices is not None:
                torch.mm(x[rows].t(), grad[rows], out=d_matrices[t])

        _run_snapshots(back, ctx.rows, x)
        return d_x, d_matrices, None


def segment_norm(
    x: Tensor, scale: Tensor, shift: Tensor, eps: float, ptr: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch-normalize the rows of each snapshot (biased variance plus eps), times ``scale``, plus ``shift``.

    Returns:
        Rows, then mean and unbiased variance of each snapshot [T, F] without gradient. The variance of one row is NaN;
        mean and variance of no rows are 0.
    """
    result: tuple[Tensor, Tensor, Tensor]
    result = _SegmentNorm.apply(x, scale, shift, eps, tuple(ptr))  # type: ignore[no-untyped-call]
    return result


class _SegmentNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, eps: float, ptr: tuple[int, ...]) -> Any:
        ctx.eps = eps
        ctx.rows = [slice(start, stop) for start, stop in pairwise(ptr)]
        out = empty(x, *x.shape)
        # A running average with momentum 1 holds the moments of the last call.
        mean, variance, saved_mean, saved_invstd = scale.new_zeros(4, len(ctx.rows), x.shape[1])

        def normalize(t: int) -> None:
            rows, saved = ctx.rows[t], {"save_mean": saved_mean[t], "save_invstd": saved_invstd[t]}
            if rows.start < rows.stop:
                running = (mean[t], variance[t], True, 1.0)
                _batch_norm.out(x[rows], scale, shift, *running, eps, out=out[rows], **saved)

        _run_snapshots(normalize, ctx.rows, x)
        ctx.save_for_backward(x, scale, saved_mean, saved_invstd)
        ctx.mark_non_differentiable(mean, variance)
        return out, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, scale, mean, inverse = ctx.saved_tensors
        d_x = empty(x, *x.shape)
        d_scale, d_shift = scale.new_zeros(2, len(ctx.rows), x.shape[1])
        grad = grads[0].contiguous()

        def back(t: int) -> None:
            rows = ctx.rows[t]
            if rows.start < rows.stop:
                saved = (None, None, mean[t], inverse[t], True, ctx.eps, [True, True, True])
                into = {"out0": d_x[rows], "out1": d_scale[t], "out2": d_shift[t]}
                _batch_norm_backward.out(grad[rows], x[rows], scale, *saved, **into)

        _run_snapshots(back, ctx.rows, x)
        return d_x, d_scale.sum(0), d_shift.sum(0), None, None


def stable_topk(scores: Tensor, k: int) -> Tensor:
    """Indices of the k highest scores (all if fewer), in descending order, ties by index."""
    candidates = torch.arange(len(scores), device=scores.device)
    if len(scores) > k:
        threshold = torch.topk(scores, k, sorted=False).values.min()
        candidates = torch.nonzero(scores >= threshold)[:, 0]
    return candidates[torch.argsort(scores[candidates], descending=True, stable=True)[:k]]


def select_with_sparse_grad(x: Tensor, rows: Tensor) -> Tensor:
    """Select x[rows] with a sparse gradient, for an x that passed through ``densify_gradient`` and has other uses.

    Autograd adds the sparse gradient in place to the dense one of the other use, instead of allocating zeros like x.
    """
    return torch.nn.functional.embedding(rows, x, sparse=True)


def densify_gradient(x: Tensor) -> Tensor:
    """Return x with a dense gradient, even if ``select_with_sparse_grad`` is its only use."""
    if not x.requires_grad:
        return x
    out: Tensor = _DenseGradient.apply(x)  # type: ignore[no-untyped-call]
    return out


class _DenseGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0].to_dense() if grads[0].is_sparse else grads[0]


def _run_snapshots(work: PartFunction, rows: Sequence[slice], x: Tensor) -> None:
    """Run ``work`` for every snapshot: one per core if that keeps all cores busy, else one after the other."""
    if x.device.type == "cpu" and len(rows) >= SHARES * torch.get_num_threads():
        run_parts(work, len(rows))
        return
    for t in range(len(rows)):
        work(t)
