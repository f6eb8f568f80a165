"""Rows put apart and together again: each row in exactly one part, so that gradients are copied, never added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops import native
from strobe.ops.threads import run_parts


def parted(x: Tensor, rows: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The parts of x that the lists of row numbers name; together they name every row once."""
    if len(rows) == 1 and len(rows[0]) == len(x):
        return (x,)
    parts: tuple[Tensor, ...] = _Parted.apply(x, *rows)  # type: ignore[no-untyped-call]
    return parts


def joined(parts: Sequence[Tensor], rows: Sequence[Tensor]) -> Tensor:
    """One matrix from parts, whose rows stand where the lists of row numbers say; together all of them, once."""
    if len(parts) == 1:
        return parts[0]
    whole: Tensor = _Joined.apply(len(parts), *parts, *rows)  # type: ignore[no-untyped-call]
    return whole


def add_rows(out: Tensor, rows: Tensor, x: Tensor) -> None:
    """out[rows] += x, in place, for rows that come once each. (torch's ``index_add_`` was several times slower.)"""
    if not native.usable(out, x):
        out.index_add_(0, rows, x)
        return
    x = x.contiguous()
    parts = torch.linspace(0, len(rows), torch.get_num_threads() + 1, dtype=torch.float64).long().tolist()

    def work(part: int) -> None:
        native.call("add_rows", parts[part], parts[part + 1], x[:1].numel(), rows, x, out)

    run_parts(work, len(parts) - 1)


def picked(x: Tensor, rows: Tensor) -> Tensor:
    """Rows of x, each at most once; the others get no gradient."""
    chosen: Tensor = _Picked.apply(x, rows)  # type: ignore[no-untyped-call]
    return chosen


class _Parted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *rows: Tensor) -> Any:
        ctx.rows, ctx.shape = rows, x.shape
        return tuple(x.index_select(0, part) for part in rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        total = grads[0].new_empty(ctx.shape)
        for rows, gradient in zip(ctx.rows, grads, strict=True):
            total.index_copy_(0, rows, gradient)
        return total, *(None for _ in ctx.rows)


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, number: int, *given: Tensor) -> Tensor:
        parts, ctx.rows = given[:number], given[number:]
        whole = parts[0].new_empty(sum(len(part) for part in parts), *parts[0].shape[1:])
        for part, rows in zip(parts, ctx.rows, strict=True):
            whole.index_copy_(0, rows, part)
        return whole

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        parts = (grads[0].index_select(0, rows) for rows in ctx.rows)
        return None, *parts, *(None for _ in ctx.rows)


class _Picked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor) -> Tensor:
        ctx.rows, ctx.shape = rows, x.shape
        return x.index_select(0, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0].new_zeros(ctx.shape).index_copy_(0, ctx.rows, grads[0]), None
