"""Rows over gloo: tensors in host memory, and GPU tensors by way of pinned host memory.

Ranks may share a GPU. Messages travel as soon as the receiver has posted its receive, therefore receives are posted as
early as possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from strobe.comm.base import MessagePipeline, Work
from strobe.comm.data_plane import ALL, DataPlane, Guard

_MAX_PENDING_SENDS = 256


class GlooPlane(DataPlane):
    """Messages of the default process group, and background sums of another."""

    name: ClassVar[str] = "gloo"
    allows_reordering: ClassVar[bool] = True

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._pending_sends: list[tuple[Any, Tensor, str, int]] = []
        with guard.translate_errors("joining", "all ranks"):
            # Collectives of one group must start in one order; background all-reduces are in an order of their own.
            self._async_group = dist.new_group(backend="gloo", timeout=guard.deadline)

    def all_to_all_rows_async(
        self, sends: Mapping[int, Tensor], counts: Mapping[int, int], like: Tensor, *, kind: str
    ) -> Sequence[Work]:
        receives = [
            self.receive(src, like, num_rows, kind=kind) for src, num_rows in sorted(counts.items()) if num_rows
        ]
        for dst, rows in sorted(sends.items()):
            if len(rows):
                self.send(dst, rows, kind=kind)
        return receives

    def open_pipeline(self, receives: Mapping[tuple[int, int], int], like: Tensor, *, kind: str) -> MessagePipeline:
        pending = {key: self.receive(key[1], like, num_rows, kind=kind) for key, num_rows in sorted(receives.items())}
        return _GlooPipeline(self, pending, kind)

    def send(self, dst: int, rows: Tensor, *, kind: str) -> None:
        """Send rows to rank ``dst``; return before they have left."""
        rows = _to_host(rows.detach().contiguous())
        self._guard.count_sent(kind, rows)
        with self._guard.translate_errors(kind, f"sending to rank {dst}"):
            work = dist.isend(rows, dst)
        self._pending_sends.append((work, rows, kind, dst))  # keeps the buffer alive until the rows have left
        if len(self._pending_sends) > _MAX_PENDING_SENDS:
            self._pending_sends = [pending for pending in self._pending_sends if not pending[0].is_completed()]

    def receive(self, src: int, like: Tensor, num_rows: int, *, kind: str) -> Work:
        """Receive rows from rank ``src``. Messages of a pair of ranks arrive in order."""
        rows = torch.empty(num_rows, *like.shape[1:], dtype=like.dtype, pin_memory=like.is_cuda)
        self._guard.ledger.count_received(kind, rows.numel() * rows.element_size())
        with self._guard.translate_errors(kind, f"receiving from rank {src}"):
            work = dist.irecv(rows, src)
        return _PendingWork(self._guard, work, rows, like.device, kind, f"from rank {src}")

    def wait_sends(self) -> None:
        for work, _, kind, dst in self._pending_sends:
            self._guard.wait(work, kind, f"to rank {dst}")
        self._pending_sends.clear()

    def all_reduce(self, values: Tensor, *, kind: str) -> Tensor:
        total = _to_host(values.detach()) if values.is_cuda else values.detach().clone()
        self._guard.count_all_reduce(kind, total)
        with self._guard.translate_errors(kind, ALL):
            work = dist.all_reduce(total, async_op=True)
        self._guard.wait(work, kind, ALL, collective=True)
        return total.to(values.device)

    def all_reduce_async(self, values: Tensor, *, kind: str) -> Work:
        self._guard.count_all_reduce(kind, values)
        total = _to_host(values)
        with self._guard.translate_errors(kind, ALL):
            work = dist.all_reduce(total, group=self._async_group, async_op=True)
        return _PendingWork(self._guard, work, total, values.device, kind, ALL)


class _GlooPipeline(MessagePipeline):
    """Receives in ascending order of keys, all posted at the start."""

    def __init__(self, plane: GlooPlane, pending: dict[tuple[int, int], Work], kind: str) -> None:
        self._plane, self._pending, self._kind = plane, pending, kind

    def send(self, key: int, rows: Mapping[int, Tensor]) -> None:
        for dst, each in sorted(rows.items()):
            self._plane.send(dst, each, kind=self._kind)

    def receive(self, key: int, src: int) -> Tensor:
        return self._pending.pop((key, src)).wait()


class _PendingWork(Work):
    """A pending operation. The time from its start to ``wait`` counts as overlapped."""

    def __init__(self, guard: Guard, work: Any, rows: Tensor, device: torch.device, kind: str, peer: str) -> None:
        self._guard, self._work, self._rows, self._device = guard, work, rows, device
        self._kind, self._peer = kind, peer
        self._start = perf_counter()

    def wait(self) -> Tensor:
        ledger = self._guard.ledger
        ledger.count_overlapped(self._start)
        self._guard.wait(self._work, self._kind, self._peer)
        ledger.end_wait()
        return self._rows.to(self._device, non_blocking=True)  # pinned memory is not reused before it was read


def _to_host(values: Tensor) -> Tensor:
    """Copy GPU tensors into pinned memory, from which gloo can send."""
    return torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(values) if values.is_cuda else values
