"""Differentiable row exchanges between ranks: gradients travel in the opposite direction.

Autograd runs operations in exactly the reverse order of their creation, on every rank, so sends and receives match in
backward as they did in forward. That requires every operation to take part in backward on every rank, even if this rank
does not use its result. Therefore each operation returns a *token*, an empty tensor, and ``attach_tokens`` ties all
tokens to the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.comm.base import Comm
from strobe.ops.dense.rows import add_rows


@dataclass(frozen=True, eq=False)
class Route:
    """The rows that this rank sends and receives.

    Args:
        send: row indices, by receiving rank.
        receive: the number of rows, by sending rank. Received rows are concatenated in order of rank.
    """

    send: dict[int, Tensor]
    receive: dict[int, int]

    @property
    def rows_sent(self) -> int:
        return sum(len(rows) for rows in self.send.values())

    @property
    def rows_received(self) -> int:
        return sum(self.receive.values())

    @property
    def is_empty(self) -> bool:
        return not self.rows_sent and not self.rows_received


def exchange(comm: Comm, route: Route, x: Tensor, *, kind: str) -> tuple[Tensor, Tensor]:
    """Send and receive rows of x along ``route``. Returns the received rows [R, F] and a token."""
    received, token = _Exchange.apply(comm, route, kind, anchor(x), x)  # type: ignore[no-untyped-call]
    return received, token


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, route: Route, kind: str, grad_anchor: Tensor, x: Tensor) -> Any:
        ctx.comm, ctx.route, ctx.kind, ctx.shape = comm, route, kind, x.shape
        sends = {dst: x[rows] for dst, rows in route.send.items()}
        received = comm.all_to_all_rows(sends, route.receive, x, kind=kind)
        out = torch.cat(received) if received else x.new_empty(0, *x.shape[1:])
        return out, x.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        route, gradient = ctx.route, grads[0].contiguous()
        counts = [rows for _, rows in sorted(route.receive.items())]
        sends = dict(zip(sorted(route.receive), gradient.split(counts), strict=True)) if counts else {}
        receive = {dst: len(rows) for dst, rows in route.send.items()}
        received = ctx.comm.all_to_all_rows(sends, receive, gradient, kind=ctx.kind)
        total = gradient.new_zeros(ctx.shape)
        receivers = [dst for dst, rows in sorted(route.send.items()) if len(rows)]
        for dst, rows in zip(receivers, received, strict=True):
            add_rows(total, route.send[dst], rows)
        return None, None, None, None, total


def all_reduce_rows(comm: Comm, x: Tensor, *, kind: str) -> tuple[Tensor, Tensor]:
    """Sum x over all ranks; the gradient is the sum of all ranks' gradients. Returns the sum and a token."""
    total, token = _AllReduceRows.apply(comm, kind, anchor(x), x)  # type: ignore[no-untyped-call]
    return total, token


class _AllReduceRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, kind: str, grad_anchor: Tensor, x: Tensor) -> Any:
        ctx.comm, ctx.kind = comm, kind
        return comm.all_reduce(x, kind=kind), x.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, None, ctx.comm.all_reduce(grads[0].contiguous(), kind=ctx.kind)


def anchor(like: Tensor) -> Tensor:
    """Return an empty tensor that requires grad: an operation with this input always takes part in backward."""
    return torch.empty(0, dtype=like.dtype, device=like.device, requires_grad=torch.is_grad_enabled())


def attach_tokens(x: Tensor, tokens: Sequence[Tensor]) -> Tensor:
    """Return x, whose backward reaches the operations of all tokens.

    Its backward reads a saved tensor first: under activation checkpointing every rank starts the recomputation here,
    before the first message of the backward pass.
    """
    out: Tensor = _AttachTokens.apply(x, *tokens)  # type: ignore[no-untyped-call]
    return out


class _AttachTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *tokens: Tensor) -> Tensor:
        ctx.save_for_backward(x.new_empty(0))
        ctx.tokens = [(token.dtype, token.device) for token in tokens]
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        _ = ctx.saved_tensors
        return grads[0], *(torch.empty(0, dtype=dtype, device=device) for dtype, device in ctx.tokens)
