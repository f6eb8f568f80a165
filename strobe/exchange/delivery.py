"""How rows of other ranks are brought to a stage: couriers stay for a whole run, each exchange of a pass is a delivery.

Nobody who needs rows asks whether they are fresh: the plan's choice has made the courier.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.comm import Comm
from strobe.comm.rows import Route, anchor
from strobe.ops.picked import add_rows


class Delivery(ABC):
    """The rows of one exchange in one pass, and on the way back their gradients."""

    @abstractmethod
    def send(self, x: Tensor) -> Callable[[], Tensor]:
        """Own rows [C, F] leave. Calling the answer waits for those of others, [R, F], in order of rank."""

    @abstractmethod
    def send_back(self, gradient: Tensor) -> Callable[[Tensor], None]:
        """Gradients [R, F] of others' rows leave. The answer waits for those of own rows and adds them to [C, F]."""


class Courier(ABC):
    """Who brings the rows of others to one stage of a window, in every pass over it."""

    @abstractmethod
    def delivery(self, route: Route, x: Tensor, *, kind: str) -> Delivery | None:
        """The next exchange of this pass; None where this rank has nobody to talk to. All ranks must ask, in the
        same order."""

    @abstractmethod
    def pass_begins(self) -> None:
        """The first exchange of a pass over the window comes next."""

    @abstractmethod
    def epoch_begins(self, first_loss: float | None, last_loss: float | None) -> None:
        """The losses of the first epoch and of the one before; None where there was none."""

    @abstractmethod
    def remembered(self) -> list[Any]:
        """What must be known to go on in another process: tensors and plain values. Empty if nothing must."""

    @abstractmethod
    def remember(self, found: list[Any]) -> None:
        """Goes on from what was remembered elsewhere."""


class Fresh(Courier):
    """Every row in every pass, as it is now."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm

    def delivery(self, route: Route, x: Tensor, *, kind: str) -> Delivery | None:
        del x
        return None if route.silent else FreshRows(self._comm, route, kind)

    def pass_begins(self) -> None:
        pass

    def epoch_begins(self, first_loss: float | None, last_loss: float | None) -> None:
        pass

    def remembered(self) -> list[Any]:
        return []

    def remember(self, found: list[Any]) -> None:
        assert not found, "nothing is remembered of what is fresh"


class FreshRows(Delivery):
    """All rows of a route."""

    def __init__(self, comm: Comm, route: Route, kind: str) -> None:
        self.comm, self.route, self.kind = comm, route, kind

    def send(self, x: Tensor) -> Callable[[], Tensor]:
        sends = {to: x.index_select(0, rows) for to, rows in self.route.send.items()}
        coming = self.comm.swap_later(sends, self.route.receive, x, kind=self.kind)

        def arrived() -> Tensor:
            rows = [arrival.wait() for arrival in coming]
            if len(rows) == 1:
                return rows[0]
            return torch.cat(rows) if rows else x.new_empty(0, *x.shape[1:])

        return arrived

    def send_back(self, gradient: Tensor) -> Callable[[Tensor], None]:
        route = self.route
        counts = [rows for _, rows in sorted(route.receive.items())]
        sends = dict(zip(sorted(route.receive), gradient.split(counts), strict=True)) if counts else {}
        counted = {to: len(rows) for to, rows in route.send.items()}
        coming = self.comm.swap_later(sends, counted, gradient, kind=self.kind)
        senders = [to for to, rows in sorted(route.send.items()) if len(rows)]

        def add_to(total: Tensor) -> None:
            for to, arrival in zip(senders, coming, strict=True):
                add_rows(total, route.send[to], arrival.wait())

        return add_to


class Arranged(Delivery):
    """The same rows in the order in which they are wanted."""

    def __init__(self, delivery: Delivery, order: Tensor) -> None:
        self._delivery, self._order = delivery, order

    def send(self, x: Tensor) -> Callable[[], Tensor]:
        arrive = self._delivery.send(x)
        return lambda: arrive().index_select(0, self._order)

    def send_back(self, gradient: Tensor) -> Callable[[Tensor], None]:
        return self._delivery.send_back(torch.empty_like(gradient).index_copy_(0, self._order, gradient))


def arrivals(delivery: Delivery, x: Tensor) -> tuple[Tensor, Tensor]:
    """The rows that others send [R, F], and a token."""
    arrived, token = _Arrivals.apply(delivery, anchor(x), x)  # type: ignore[no-untyped-call]
    return arrived, token


class _Arrivals(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, delivery: Delivery, here: Tensor, x: Tensor) -> Any:
        ctx.delivery, ctx.shape = delivery, x.shape
        return delivery.send(x)(), x.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        gradient = grads[0].contiguous()
        come_back = ctx.delivery.send_back(gradient)
        total = gradient.new_zeros(ctx.shape)
        come_back(total)
        return None, None, total
