"""Columns of several results side by side, in memory that is used again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.ops import native
from strobe.ops.memory import empty
from strobe.ops.threads import run_parts

ROWS = 1 << 15
"""Rows that are copied in one go."""


def beside(*parts: Tensor) -> Tensor:
    """The rows of all parts [C, W_k] as one row each, [C, sum of W_k]."""
    if not native.usable(*parts):
        return torch.cat(parts, 1)
    joined: Tensor = _Beside.apply(*parts)  # type: ignore[no-untyped-call]
    return joined


class _Beside(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *parts: Tensor) -> Tensor:
        ctx.widths = [part.shape[1] for part in parts]
        out = empty(parts[0], len(parts[0]), sum(ctx.widths))
        for part, at in zip(parts, _starts(ctx.widths), strict=False):
            _copy(part.contiguous(), part.shape[1], out[:, at:])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        grad = grads[0].contiguous()
        given = []
        for wanted, (at, stop) in zip(ctx.needs_input_grad, pairwise(_starts(ctx.widths)), strict=True):
            part = empty(grad, len(grad), stop - at) if wanted else None
            if part is not None:
                _copy(grad[:, at:], stop - at, part)
            given.append(part)
        return tuple(given)


def _starts(widths: list[int]) -> list[int]:
    """Where the columns of each part begin, and where the last end."""
    return [sum(widths[:k]) for k in range(len(widths) + 1)]


def _copy(source: Tensor, width: int, target: Tensor) -> None:
    """The first columns of every row; rows may be longer than what is copied."""
    rows = range(0, len(source), ROWS)

    def work(part: int) -> None:
        last = min(rows[part] + ROWS, len(source))
        ends = (source.stride(0), source, target.stride(0), target)
        native.call("copy_columns", rows[part], last, width, *ends)

    run_parts(work, len(rows))
