"""Operations on the rows of every snapshot: times its matrix, shifted and scaled by its moments, the best of them.

Each writes one result for all cells and makes nothing else of that size: fresh memory costs more than the arithmetic
here, since the system has to clear every page of it. ``ptr`` [T + 1] says where the rows of each snapshot begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops import triton
from strobe.ops.memory import empty
from strobe.ops.narrow import in_float32, is_narrow
from strobe.ops.readout import readout
from strobe.ops.threads import Work, run_parts

SHARES = 4  # snapshots per core, at least, for working on one per core

_batch_norm = torch.ops.aten.native_batch_norm
_batch_norm_backward = torch.ops.aten.native_batch_norm_backward


def segment_matmul(x: Tensor, matrices: Tensor, ptr: Sequence[int]) -> Tensor:
    """The rows of snapshot t in x [C, A] times matrix t of [T, A, B], for every t: [C, B]."""
    if is_narrow(x):
        return in_float32(segment_matmul, x, matrices, ptr)
    product: Tensor = _Matmul.apply(x, matrices, tuple(ptr))  # type: ignore[no-untyped-call]
    return product


def segment_readout(x: Tensor, matrices: Tensor, ptr: Sequence[int], weight: Tensor, bias: Tensor) -> Tensor:
    """``readout(segment_matmul(x, matrices, ptr), weight, bias)``; on a GPU the product is never stored, where answers
    are few."""
    if triton.usable(x):
        from strobe.ops.triton import segments as kernels

        if kernels.fits(len(matrices), matrices.shape[1], matrices.shape[2], len(weight)):
            return kernels.segment_readout(x, matrices, ptr, weight, bias)
    return readout(segment_matmul(x, matrices, ptr), weight, bias)


class _Matmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrices: Tensor, ptr: tuple[int, ...]) -> Tensor:
        ctx.rows = [slice(start, stop) for start, stop in pairwise(ptr)]
        ctx.save_for_backward(x, matrices)
        out = empty(x, len(x), matrices.shape[2])

        def multiply(t: int) -> None:
            torch.mm(x[ctx.rows[t]], matrices[t], out=out[ctx.rows[t]])

        _each(multiply, ctx.rows, x)
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

        _each(back, ctx.rows, x)
        return d_x, d_matrices, None


def segment_standardise(
    x: Tensor, scale: Tensor, shift: Tensor, eps: float, ptr: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of each snapshot with mean 0 and variance 1 per column (biased, plus eps), times ``scale``, plus ``shift``.

    Also each snapshot's mean and unbiased variance [T, F], without gradient; of one row the variance is not a number,
    of none both are 0.
    """
    standardised: tuple[Tensor, Tensor, Tensor]
    standardised = _Standardise.apply(x, scale, shift, eps, tuple(ptr))  # type: ignore[no-untyped-call]
    return standardised


class _Standardise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, eps: float, ptr: tuple[int, ...]) -> Any:
        ctx.eps = eps
        ctx.rows = [slice(start, stop) for start, stop in pairwise(ptr)]
        out = empty(x, *x.shape)
        # A running average that forgets at once (momentum 1) is where torch tells the moments themselves.
        mean, variance, kept_mean, kept_scale = scale.new_zeros(4, len(ctx.rows), x.shape[1])

        def standardise(t: int) -> None:
            rows, kept = ctx.rows[t], {"save_mean": kept_mean[t], "save_invstd": kept_scale[t]}
            if rows.start < rows.stop:
                running = (mean[t], variance[t], True, 1.0)
                _batch_norm.out(x[rows], scale, shift, *running, eps, out=out[rows], **kept)

        _each(standardise, ctx.rows, x)
        ctx.save_for_backward(x, scale, kept_mean, kept_scale)
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
                kept = (None, None, mean[t], inverse[t], True, ctx.eps, [True, True, True])
                into = {"out0": d_x[rows], "out1": d_scale[t], "out2": d_shift[t]}
                _batch_norm_backward.out(grad[rows], x[rows], scale, *kept, **into)

        _each(back, ctx.rows, x)
        return d_x, d_scale.sum(0), d_shift.sum(0), None, None


def highest(scores: Tensor, k: int) -> Tensor:
    """Places of the k highest numbers (all, if there are fewer), best first, of equal ones the first."""
    among = torch.arange(len(scores), device=scores.device)
    if len(scores) > k:
        least = torch.topk(scores, k, sorted=False).values.min()
        among = torch.nonzero(scores >= least)[:, 0]
    return among[torch.argsort(scores[among], descending=True, stable=True)[:k]]


def pick(x: Tensor, rows: Tensor) -> Tensor:
    """x[rows] of an x that is used elsewhere too and came through ``with_dense_gradient``.

    The gradient it gives x is sparse, and autograd adds it in place to the dense one of the other use: a dense one
    would be as large as x and zero almost everywhere.
    """
    return torch.nn.functional.embedding(rows, x, sparse=True)


def with_dense_gradient(x: Tensor) -> Tensor:
    """x, whose gradient is dense even where in the end nobody but ``pick`` gives it one."""
    if not x.requires_grad:
        return x
    same: Tensor = _DenseGradient.apply(x)  # type: ignore[no-untyped-call]
    return same


class _DenseGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0].to_dense() if grads[0].is_sparse else grads[0]


def _each(work: Work, rows: Sequence[slice], x: Tensor) -> None:
    """Works on every snapshot: one per core where that keeps all cores busy, else one after the other on all."""
    if x.device.type == "cpu" and len(rows) >= SHARES * torch.get_num_threads():
        run_parts(work, len(rows))
        return
    for t in range(len(rows)):
        work(t)
