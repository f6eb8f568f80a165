"""A sparse product some of whose rows come from other ranks: own rows are multiplied while those are on their way.

The same as pulling all rows first and multiplying then, without a copy of the own ones; the way back is alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.comm.rows import anchor
from strobe.exchange.delivery import Delivery
from strobe.ops.corners import Corners
from strobe.ops.picked import add_rows
from strobe.ops.sparse import Sparse, multiply


@dataclass(frozen=True, eq=False)
class HaloMatrix:
    """A matrix over own rows followed by those of others, in two: ``own`` [C, C]; ``far`` [R, H], which has only the
    rows that read others, numbered by ``rows``."""

    own: Sparse | Corners
    far: Sparse | Corners
    rows: Tensor

    def times(self, x: Tensor, arrive: Callable[[], Tensor]) -> Tensor:
        """The product with own rows, then with those of others, which are waited for in between."""
        out = multiply(self.own, x)
        arrived = arrive()
        if len(arrived):
            add_rows(out, self.rows, multiply(self.far, arrived))
        return out

    def far_gradient(self, gradient: Tensor) -> Tensor:
        """The gradient of others' rows, from that of the product."""
        if not self.far.num_cols:
            return gradient[:0]
        return multiply(self.far.transposed, gradient.index_select(0, self.rows))

    def own_gradient(self, gradient: Tensor) -> Tensor:
        """The gradient of own rows, without what others say about them."""
        return multiply(self.own.transposed, gradient)


def split_columns(matrix: Sparse, num_own: int, *, symmetric: bool) -> HaloMatrix:
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
    )


def halo_product(delivery: Delivery, matrix: HaloMatrix, x: Tensor) -> tuple[Tensor, Tensor]:
    """The product with own rows x and those of others, and a token."""
    out, token = _HaloProduct.apply(delivery, matrix, anchor(x), x)  # type: ignore[no-untyped-call]
    return out, token


class _HaloProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, delivery: Delivery, matrix: HaloMatrix, here: Tensor, x: Tensor) -> Any:
        ctx.delivery, ctx.matrix = delivery, matrix
        return matrix.times(x, delivery.send(x)), x.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        matrix, gradient = ctx.matrix, grads[0].contiguous()
        come_back = ctx.delivery.send_back(matrix.far_gradient(gradient))
        total = matrix.own_gradient(gradient)
        come_back(total)
        return None, None, None, total


def _counts(rows: Tensor, num_rows: int) -> Tensor:
    return torch.bincount(rows, minlength=num_rows)


def _pointers(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _of(weight: Tensor | None, chosen: Tensor) -> Tensor | None:
    return None if weight is None else weight[chosen]
