"""Asynchronous row transfers for stages that run as coroutines, one per snapshot.

Sending and receiving are two autograd operations. In backward, the receive sends the gradients of remote rows, and the
send waits for those of local rows, after everything computed in between has been differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from time import perf_counter
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from strobe.comm.rows import anchor
from strobe.exchange.halo import HaloMatrix
from strobe.exchange.overlap.timing import SnapshotSize, TimingModel
from strobe.exchange.transfer import RowExchange, RowTransfer


class Yield:
    """Awaited by a stage that has sent rows of ``columns`` columns and needs the remote ones to continue."""

    def __init__(self, columns: int) -> None:
        self.columns = columns

    def __await__(self) -> Generator[Yield, None, None]:
        yield self


def run_to_completion(stage: Coroutine[Yield, None, Tensor]) -> Tensor:
    """Run a stage that never yields, and return its result."""
    try:
        stage.send(None)
    except StopIteration as done:
        out: Tensor = done.value
        return out
    stage.close()
    raise AssertionError("only a stage that runs per snapshot may yield")


class AsyncTransfer:
    """A row transfer whose send and receive are separate autograd operations.

    Without ``overlap`` each send is waited for at once: same operations, same order, same bits.
    """

    def __init__(self, transfer: RowTransfer, timing: TimingModel, *, overlap: bool) -> None:
        self._transfer, self._timing, self._overlap = transfer, timing, overlap
        self._sent_at = 0.0
        self._pending_rows: Callable[[], Tensor] | None = None
        self._pending_grad: Callable[[Tensor], None] | None = None

    def start_send(self, x: Tensor) -> Tensor:
        """Start sending local rows. Returns x for the receive only: its gradient is added to in place."""
        same: Tensor = _StartSend.apply(self, anchor(x), x)  # type: ignore[no-untyped-call]
        return same

    def recv_and_multiply(self, matrix: HaloMatrix, x: Tensor) -> tuple[Tensor, Tensor]:
        """Multiply with local rows, wait, and add the product with remote rows. Returns the product and a token."""
        out, token = _RecvAndMultiply.apply(self, matrix, anchor(x), x)  # type: ignore[no-untyped-call]
        return out, token

    def recv_and_concat(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Wait for remote rows and append them to local ones. Returns all rows and a token."""
        out, token = _RecvAndConcat.apply(self, anchor(x), x)  # type: ignore[no-untyped-call]
        return out, token

    def send(self, x: Tensor) -> None:
        self._sent_at = perf_counter()
        self._pending_rows = self._transfer.send(x)
        if not self._overlap:
            rows = self.wait_rows()
            self._pending_rows = lambda: rows

    def wait_rows(self) -> Tensor:
        """Wait for remote rows, and record how long that took."""
        assert self._pending_rows is not None
        requested = perf_counter()
        rows, self._pending_rows = self._pending_rows(), None
        self._timing.record_arrival(rows.numel() * rows.element_size(), self._sent_at, requested, perf_counter())
        return rows

    def send_grad(self, remote: Tensor, own: Callable[[], Tensor]) -> Tensor:
        """Start sending gradients of remote rows, then compute and return those of local rows."""
        if self._overlap:
            self._pending_grad = self._transfer.send_grad(remote)
            return own()
        total = own()
        self._transfer.send_grad(remote)(total)
        return total

    def recv_grad(self, total: Tensor) -> None:
        """Wait for the gradients of sent rows and add them to ``total``."""
        if self._pending_grad is not None:
            self._pending_grad(total)
            self._pending_grad = None


class SnapshotStages(Protocol):
    """A structure stage of a window as one coroutine per snapshot."""

    @property
    def inputs(self) -> Sequence[Tensor]:
        """Local rows of each snapshot."""
        ...

    @property
    def sizes(self) -> Sequence[SnapshotSize]:
        """Local cells, arcs and sent rows of each snapshot."""
        ...

    def start(
        self, t: int, row_exchange: RowExchange, make_async: Callable[[RowTransfer], AsyncTransfer]
    ) -> Coroutine[Yield, None, Tensor]:
        """The coroutine of snapshot t, which sends its rows through ``row_exchange``."""
        ...


class _StartSend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, transfer: AsyncTransfer, grad_anchor: Tensor, x: Tensor) -> Tensor:
        ctx.transfer = transfer
        transfer.send(x)
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        ctx.transfer.recv_grad(grads[0])
        return None, None, grads[0]


class _RecvAndMultiply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, transfer: AsyncTransfer, matrix: HaloMatrix, grad_anchor: Tensor, x: Tensor) -> Any:
        ctx.transfer, ctx.matrix = transfer, matrix
        return matrix.matmul(x, transfer.wait_rows), x.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        matrix, gradient = ctx.matrix, grads[0].contiguous()
        remote = matrix.remote_gradient(gradient)
        return None, None, None, ctx.transfer.send_grad(remote, lambda: matrix.own_gradient(gradient))


class _RecvAndConcat(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, transfer: AsyncTransfer, grad_anchor: Tensor, x: Tensor) -> Any:
        ctx.transfer, ctx.num_own = transfer, len(x)
        return torch.cat([x, transfer.wait_rows()]), x.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        own, remote = grads[0].tensor_split([ctx.num_own])
        # A copy: received gradients are added to it in place, and other operations may share the gradient.
        return None, None, ctx.transfer.send_grad(remote.contiguous(), lambda: own.contiguous().clone())
