"""Exchange of rows: `RowExchange` serves a stage of a window for a whole run, `RowTransfer` one exchange of a pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.comm import Comm
from strobe.comm.rows import Route, anchor
from strobe.ops.dense.rows import add_rows

if TYPE_CHECKING:
    from strobe.exchange.overlap.transfer import SnapshotStages


class RowTransfer(ABC):
    """One exchange of rows in one pass, and of their gradients in backward."""

    @abstractmethod
    def send(self, x: Tensor) -> Callable[[], Tensor]:
        """Start sending local rows [C, F].

        Returns:
            A function that waits for the remote rows, [R, F], in order of rank.
        """

    @abstractmethod
    def send_grad(self, gradient: Tensor) -> Callable[[Tensor], None]:
        """Start sending gradients [R, F] of remote rows to their owners.

        Returns:
            A function that waits for the gradients of local rows and adds them to its argument, [C, F].
        """


class RowExchange(ABC):
    """Brings remote rows to one stage of a window, in every pass over it."""

    @abstractmethod
    def start_transfer(self, route: Route, x: Tensor, *, kind: str) -> RowTransfer | None:
        """The next exchange of this pass. All ranks must call it, in the same order.

        Args:
            route: local rows to send by rank, and the number of rows to receive by rank.
            x: local rows, [C, F].
            kind: the ledger kind its bytes are counted under.

        Returns:
            The transfer, or None if this rank neither sends nor receives.
        """

    def run_per_snapshot(self, stages: SnapshotStages) -> Tensor | None:
        """Run a structure stage as one coroutine per snapshot. All ranks must call it.

        Returns:
            New rows of all cells of the window, or None if this exchange has no use for it: the caller then runs the
            stage on the whole window.
        """
        del stages
        return None

    @abstractmethod
    def begin_pass(self) -> None:
        """A pass over the window begins: its first exchange is next."""

    @abstractmethod
    def begin_epoch(self, first_loss: float | None, last_loss: float | None) -> None:
        """An epoch begins, given the losses of the first and of the previous epoch (None before there are any)."""

    @abstractmethod
    def state_dict(self) -> list[Any]:
        """State to resume from: tensors and plain values. Empty if there is none."""

    @abstractmethod
    def load_state_dict(self, state: list[Any]) -> None:
        """Resume from ``state_dict()`` of an earlier process."""


class FreshExchange(RowExchange):
    """Sends every row in every pass."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm

    def start_transfer(self, route: Route, x: Tensor, *, kind: str) -> RowTransfer | None:
        del x
        return None if route.is_empty else FreshTransfer(self._comm, route, kind)

    def begin_pass(self) -> None:
        pass

    def begin_epoch(self, first_loss: float | None, last_loss: float | None) -> None:
        pass

    def state_dict(self) -> list[Any]:
        return []

    def load_state_dict(self, state: list[Any]) -> None:
        assert not state, "a fresh exchange has no state"


class FreshTransfer(RowTransfer):
    """All rows of a route."""

    def __init__(self, comm: Comm, route: Route, kind: str) -> None:
        self.comm, self.route, self.kind = comm, route, kind

    def send(self, x: Tensor) -> Callable[[], Tensor]:
        sends = {dst: x.index_select(0, rows) for dst, rows in self.route.send.items()}
        pending = self.comm.all_to_all_rows_async(sends, self.route.receive, x, kind=self.kind)

        def wait_rows() -> Tensor:
            rows = [work.wait() for work in pending]
            if len(rows) == 1:
                return rows[0]
            return torch.cat(rows) if rows else x.new_empty(0, *x.shape[1:])

        return wait_rows

    def send_grad(self, gradient: Tensor) -> Callable[[Tensor], None]:
        route = self.route
        counts = [rows for _, rows in sorted(route.receive.items())]
        sends = dict(zip(sorted(route.receive), gradient.split(counts), strict=True)) if counts else {}
        receives = {dst: len(rows) for dst, rows in route.send.items()}
        pending = self.comm.all_to_all_rows_async(sends, receives, gradient, kind=self.kind)
        ranks = [dst for dst, rows in sorted(route.send.items()) if len(rows)]

        def add_to(total: Tensor) -> None:
            for rank, work in zip(ranks, pending, strict=True):
                add_rows(total, route.send[rank], work.wait())

        return add_to


class PermutedTransfer(RowTransfer):
    """Another transfer, with its remote rows permuted by ``order``."""

    def __init__(self, transfer: RowTransfer, order: Tensor) -> None:
        self._transfer, self._order = transfer, order

    def send(self, x: Tensor) -> Callable[[], Tensor]:
        wait_rows = self._transfer.send(x)
        return lambda: wait_rows().index_select(0, self._order)

    def send_grad(self, gradient: Tensor) -> Callable[[Tensor], None]:
        return self._transfer.send_grad(torch.empty_like(gradient).index_copy_(0, self._order, gradient))


def receive_rows(transfer: RowTransfer, x: Tensor) -> tuple[Tensor, Tensor]:
    """Send local rows and wait for remote ones, differentiably. Returns remote rows [R, F] and a token."""
    rows, token = _ReceiveRows.apply(transfer, anchor(x), x)  # type: ignore[no-untyped-call]
    return rows, token


class _ReceiveRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, transfer: RowTransfer, grad_anchor: Tensor, x: Tensor) -> Any:
        ctx.transfer, ctx.shape = transfer, x.shape
        return transfer.send(x)(), x.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        gradient = grads[0].contiguous()
        add_grad = ctx.transfer.send_grad(gradient)
        total = gradient.new_zeros(ctx.shape)
        add_grad(total)
        return None, None, total
