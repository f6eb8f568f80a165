"""A sparse product some of whose rows come from other ranks: own rows are multiplied while those are on their way.

The same as pulling all rows first and multiplying then, without a copy of the own ones; the way back is alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.comm import Comm
from strobe.comm.rows import Route, anchor
from strobe.ops.picked import add_rows
from strobe.ops.sparse import Sparse, multiply


@dataclass(frozen=True, eq=False)
class HaloMatrix:
    """A matrix over own rows followed by those of others, in two: ``own`` [C, C]; ``far`` [R, H], which has only the
    rows that read others, numbered by ``rows``."""

    own: Sparse
    far: Sparse
    rows: Tensor
    route: Route


def split_columns(matrix: Sparse, num_own: int, route: Route, *, symmetric: bool) -> HaloMatrix:
    """The matrix cut after its first columns."""
    far = matrix.col >= num_own
    row = matrix.rows
    own_ptr, far_count = (_counts(row[each], matrix.num_rows) for each in (~far, far))
    rows = torch.nonzero(far_count)[:, 0]
    return HaloMatrix(
        Sparse(_pointers(own_ptr), matrix.col[~far], _of(matrix.weight, ~far), num_own, symmetric),
        Sparse(
            _pointers(far_count[rows]),
            (matrix.col[far] - num_own).to(torch.int32),
            _of(matrix.weight, far),
            matrix.num_cols - num_own,
        ),
        rows,
        route,
    )


def halo_product(comm: Comm, matrix: HaloMatrix, x: Tensor, *, kind: str) -> tuple[Tensor, Tensor]:
    """The product with own rows x and those of others, and a token."""
    out, token = _HaloProduct.apply(comm, matrix, kind, anchor(x), x)  # type: ignore[no-untyped-call]
    return out, token


class _HaloProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, comm: Comm, matrix: HaloMatrix, kind: str, here: Tensor, x: Tensor) -> Any:
        ctx.comm, ctx.matrix, ctx.kind = comm, matrix, kind
        route = matrix.route
        sends = {to: x.index_select(0, rows) for to, rows in route.send.items()}
        coming = comm.swap_later(sends, route.receive, x, kind=kind)
        out = multiply(matrix.own, x)
        arrived = [arrival.wait() for arrival in coming]
        if arrived:
            far = multiply(matrix.far, arrived[0] if len(arrived) == 1 else torch.cat(arrived))
            add_rows(out, matrix.rows, far)
        return out, x.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        comm, matrix, route = ctx.comm, ctx.matrix, ctx.matrix.route
        gradient = grads[0].contiguous()
        sends: dict[int, Tensor] = {}
        if route.receive:
            far = multiply(matrix.far.transposed, gradient.index_select(0, matrix.rows))
            counts = [rows for _, rows in sorted(route.receive.items())]
            sends = dict(zip(sorted(route.receive), far.split(counts), strict=True))
        counted = {to: len(rows) for to, rows in route.send.items()}
        coming = comm.swap_later(sends, counted, gradient, kind=ctx.kind)
        total = multiply(matrix.own.transposed, gradient)
        senders = [to for to, rows in sorted(route.send.items()) if len(rows)]
        for to, arrival in zip(senders, coming, strict=True):
            add_rows(total, route.send[to], arrival.wait())
        return None, None, None, None, total


def _counts(rows: Tensor, num_rows: int) -> Tensor:
    return torch.bincount(rows, minlength=num_rows)


def _pointers(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _of(weight: Tensor | None, chosen: Tensor) -> Tensor | None:
    return None if weight is None else weight[chosen]
