"""One exchange under way: rows depart, something else may be computed, rows of others arrive; gradients likewise.

Departure and arrival are two operations of autograd. Backward comes to them in the reverse order: at the arrival
gradients of others' rows leave, and at the departure, when all that was made in between has been gone through, those
of own rows come.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.comm.rows import anchor
from strobe.exchange.delivery import Delivery
from strobe.exchange.halo_product import HaloMatrix
from strobe.exchange.overlap_seconds import Seconds


class Waiting:
    """What a stage says when it can go no further: rows so wide have left, those of others are on their way."""

    def __init__(self, columns: int) -> None:
        self.columns = columns

    def __await__(self) -> Generator[Waiting, None, None]:
        yield self


def at_once(stage: Coroutine[Waiting, None, Tensor]) -> Tensor:
    """What a stage gives that never has to wait for others to compute."""
    try:
        stage.send(None)
    except StopIteration as done:
        out: Tensor = done.value
        return out
    stage.close()
    raise AssertionError("only a stage that runs snapshot by snapshot can wait")


class Flight:
    """The rows of one delivery on their way out, and on the way back their gradients.

    Without ``overlap`` both are waited for as soon as they have left: the same operations in the same order, and the
    same bits.
    """

    def __init__(self, delivery: Delivery, seconds: Seconds, *, overlap: bool) -> None:
        self._delivery, self._seconds, self._overlap = delivery, seconds, overlap
        self._departed = 0.0
        self._coming: Callable[[], Tensor] | None = None
        self._coming_back: Callable[[Tensor], None] | None = None

    def depart(self, x: Tensor) -> Tensor:
        """Own rows leave. x, for the arrival and for nobody else: its gradient is added to in place."""
        same: Tensor = _Depart.apply(self, anchor(x), x)  # type: ignore[no-untyped-call]
        return same

    def arrive_in_product(self, matrix: HaloMatrix, x: Tensor) -> tuple[Tensor, Tensor]:
        """The product with own rows, then with those of others; and a token."""
        out, token = _ArriveInProduct.apply(self, matrix, anchor(x), x)  # type: ignore[no-untyped-call]
        return out, token

    def arrive(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Own rows, then those of others; and a token."""
        out, token = _Arrive.apply(self, anchor(x), x)  # type: ignore[no-untyped-call]
        return out, token

    def send(self, x: Tensor) -> None:
        self._departed = perf_counter()
        self._coming = self._delivery.send(x)
        if not self._overlap:
            rows = self.arrived()
            self._coming = lambda: rows

    def arrived(self) -> Tensor:
        """Waits for the rows of others; how long that was, is learnt from."""
        assert self._coming is not None
        asked = perf_counter()
        rows, self._coming = self._coming(), None
        self._seconds.arrived(rows.numel() * rows.element_size(), self._departed, asked, perf_counter())
        return rows

    def send_back(self, far: Tensor, own: Callable[[], Tensor]) -> Tensor:
        """Gradients of others' rows leave, then those of own rows are computed."""
        if self._overlap:
            self._coming_back = self._delivery.send_back(far)
            return own()
        total = own()
        self._delivery.send_back(far)(total)
        return total

    def come_back(self, total: Tensor) -> None:
        """Adds what others say about own rows."""
        if self._coming_back is not None:
            self._coming_back(total)
            self._coming_back = None


class _Depart(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, flight: Flight, here: Tensor, x: Tensor) -> Tensor:
        ctx.flight = flight
        flight.send(x)
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        ctx.flight.come_back(grads[0])
        return None, None, grads[0]


class _ArriveInProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, flight: Flight, matrix: HaloMatrix, here: Tensor, x: Tensor) -> Any:
        ctx.flight, ctx.matrix = flight, matrix
        return matrix.times(x, flight.arrived), x.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        matrix, gradient = ctx.matrix, grads[0].contiguous()
        far = matrix.far_gradient(gradient)
        return None, None, None, ctx.flight.send_back(far, lambda: matrix.own_gradient(gradient))


class _Arrive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, flight: Flight, here: Tensor, x: Tensor) -> Any:
        ctx.flight, ctx.num_own = flight, len(x)
        return torch.cat([x, flight.arrived()]), x.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        own, far = grads[0].tensor_split([ctx.num_own])
        # A copy: what comes back is added to it, and the gradient of all rows may be somebody else's, too.
        return None, None, ctx.flight.send_back(far.contiguous(), lambda: own.contiguous().clone())
