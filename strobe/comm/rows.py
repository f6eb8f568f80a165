"""Rows that travel between ranks, differentiably: their gradients travel back.

Backward passes run operations in exactly the reverse order of their creation, on every rank, so that messages meet
their counterparts there as they did on the way out. That holds only if every operation takes part in backward on every
rank, also one whose result this rank happens not to use: each gives a *token*, an empty tensor, and ``tied`` hangs all
of them on the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.comm.base import Comm
from strobe.ops.picked import add_rows


@dataclass(frozen=True, eq=False)
class Route:
    """Which of this rank's rows go to whom, and how many come from whom.

    ``send`` lists row numbers, by receiver, those of the lowest first; what is received stands in order of sender.
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
    def silent(self) -> bool:
        return not self.rows_sent and not self.rows_received


def exchange(comm: Comm, route: Route, x: Tensor, *, kind: str) -> tuple[Tensor, Tensor]:
    """The rows that others send [R, F], as the route says, and a token."""
    arrived, token = _Exchange.apply(comm, route, kind, anchor(x), x)  # type: ignore[no-untyped-call]
    return arrived, token


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, route: Route, kind: str, here: Tensor, x: Tensor) -> Any:
        ctx.comm, ctx.route, ctx.kind, ctx.shape = comm, route, kind, x.shape
        sends = {to: x[rows] for to, rows in route.send.items()}
        arrived = comm.swap(sends, route.receive, x, kind=kind)
        out = torch.cat(arrived) if arrived else x.new_empty(0, *x.shape[1:])
        return out, x.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        route, gradient = ctx.route, grads[0].contiguous()
        counts = [rows for _, rows in sorted(route.receive.items())]
        sends = dict(zip(sorted(route.receive), gradient.split(counts), strict=True)) if counts else {}
        back = ctx.comm.swap(sends, {to: len(rows) for to, rows in route.send.items()}, gradient, kind=ctx.kind)
        total = gradient.new_zeros(ctx.shape)
        senders = [to for to, rows in sorted(route.send.items()) if len(rows)]
        for to, rows in zip(senders, back, strict=True):
            add_rows(total, route.send[to], rows)
        return None, None, None, None, total


def summed(comm: Comm, x: Tensor, *, kind: str) -> tuple[Tensor, Tensor]:
    """The sum of x over all ranks, on each; the gradient is the sum of all ranks' gradients. And a token."""
    total, token = _Summed.apply(comm, kind, anchor(x), x)  # type: ignore[no-untyped-call]
    return total, token


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, kind: str, here: Tensor, x: Tensor) -> Any:
        ctx.comm, ctx.kind = comm, kind
        return comm.sum(x, kind=kind), x.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, None, None, ctx.comm.sum(grads[0].contiguous(), kind=ctx.kind)


def anchor(like: Tensor) -> Tensor:
    """An empty tensor that wants a gradient: with it among the inputs an operation always takes part in backward."""
    return torch.empty(0, dtype=like.dtype, device=like.device, requires_grad=torch.is_grad_enabled())


def tied(x: Tensor, tokens: Sequence[Tensor]) -> Tensor:
    """x; its backward reaches the operations of all tokens.

    It looks at something saved first: where a stretch of time is computed again in backward, every rank begins that
    here, before any message of the way back.
    """
    out: Tensor = _Tied.apply(x, *tokens)  # type: ignore[no-untyped-call]
    return out


class _Tied(torch.autograd.Function):
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
