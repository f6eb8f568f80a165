"""Split, merge and select rows. Each row is in at most one part, so backward copies gradients instead of adding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops import native
from strobe.ops.runtime.parallel import run_parts


def split_rows(x: Tensor, rows: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Split x into parts by lists of row indices that cover every row once."""
    if len(rows) == 1 and len(rows[0]) == len(x):
        return (x,)
    parts: tuple[Tensor, ...] = _SplitRows.apply(x, True, *rows)  # type: ignore[no-untyped-call]
    return parts


def merge_rows(parts: Sequence[Tensor], rows: Sequence[Tensor]) -> Tensor:
    """Merge parts into one matrix by lists of row indices that cover every row once."""
    if len(parts) == 1:
        return parts[0]
    whole: Tensor = _MergeRows.apply(len(parts), *parts, *rows)  # type: ignore[no-untyped-call]
    return whole


def add_rows(out: Tensor, rows: Tensor, x: Tensor) -> None:
    """Add in place, out[rows] += x, for distinct rows; several times faster than ``index_add_``."""
    if not native.usable(out, x):
        out.index_add_(0, rows, x)
        return
    x = x.contiguous()
    parts = torch.linspace(0, len(rows), torch.get_num_threads() + 1, dtype=torch.float64).long().tolist()

    def work(part: int) -> None:
        native.call("add_rows", parts[part], parts[part + 1], x[:1].numel(), rows, x, out)

    run_parts(work, len(parts) - 1)


def select_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Select distinct rows of x."""
    (selected,) = _SplitRows.apply(x, False, rows)  # type: ignore[no-untyped-call]
    return selected  # type: ignore[no-any-return]


class _SplitRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, covers: bool, *rows: Tensor) -> Any:
        ctx.rows, ctx.shape, ctx.covers = rows, x.shape, covers
        return tuple(x.index_select(0, part) for part in rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        total = grads[0].new_empty(ctx.shape) if ctx.covers else grads[0].new_zeros(ctx.shape)
        for rows, gradient in zip(ctx.rows, grads, strict=True):
            total.index_copy_(0, rows, gradient)
        return total, None, *(None for _ in ctx.rows)


class _MergeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, num_parts: int, *tensors: Tensor) -> Tensor:
        parts, ctx.rows = tensors[:num_parts], tensors[num_parts:]
        whole = parts[0].new_empty(sum(len(part) for part in parts), *parts[0].shape[1:])
        for part, rows in zip(parts, ctx.rows, strict=True):
            whole.index_copy_(0, rows, part)
        return whole

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        parts = (grads[0].index_select(0, rows) for rows in ctx.rows)
        return None, *parts, *(None for _ in ctx.rows)
