"""The data plane: what carries rows and sums of tensors between ranks; here over gloo, in ``nccl.py`` over NCCL."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from time import perf_counter
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from strobe.comm.base import CommError, MessagePipeline, Work
from strobe.comm.ledger import Ledger

ALL = "of all ranks"

_MAX_PENDING_SENDS = 256


class DataPlane(ABC):
    """Transport of tensors. The methods are those of ``Comm``, for tensors of the devices that it carries."""

    name: ClassVar[str]

    allows_reordering: ClassVar[bool]

    @abstractmethod
    def all_to_all_rows_async(
        self, sends: Mapping[int, Tensor], counts: Mapping[int, int], like: Tensor, *, kind: str
    ) -> Sequence[Work]: ...

    @abstractmethod
    def open_pipeline(self, receives: Mapping[tuple[int, int], int], like: Tensor, *, kind: str) -> MessagePipeline: ...

    @abstractmethod
    def all_reduce(self, values: Tensor, *, kind: str) -> Tensor: ...

    @abstractmethod
    def all_reduce_async(self, values: Tensor, *, kind: str) -> Work: ...

    @abstractmethod
    def wait_sends(self) -> None: ...

    def check(self) -> None:  # noqa: B027 - a plane may wait for all its operations
        """Raise ``CommError`` if an operation has failed that the host has not waited for."""

    def close(self) -> None:  # noqa: B027 - a plane may have opened nothing
        """Release what the plane has opened; the process group is closed afterwards."""


class Guard:
    """Ledger, deadline and errors of a rank, for all its process groups. Waits are bounded, errors say where."""

    def __init__(self, rank: int, num_ranks: int, deadline_s: float) -> None:
        self.rank, self.num_ranks = rank, num_ranks
        self.ledger = Ledger()
        self.deadline = timedelta(seconds=deadline_s)

    def wait(
        self, work: Any, kind: str, peer: str, *, collective: bool = False, deadline: timedelta | None = None
    ) -> None:
        """Block until an operation of torch.distributed is done, up to the deadline, and count the seconds."""
        start, deadline = perf_counter(), deadline or self.deadline
        with self.translate_errors(kind, peer):
            if not work.wait(deadline):
                raise RuntimeError(f"no answer for {deadline.total_seconds():g} s")
        self.ledger.seconds["straggler_wait_s" if collective else "exposed_comm_s"] += perf_counter() - start

    def count_sent(self, kind: str, rows: Tensor) -> None:
        """Count a message of rows."""
        self.ledger.count_sent(kind, rows.numel() * rows.element_size(), len(rows))

    def count_all_reduce(self, kind: str, values: Tensor) -> None:
        """Count what a ring all-reduce sends and receives, 2 (W - 1) / W of its bytes, for every algorithm."""
        num_bytes = 2 * (self.num_ranks - 1) * values.numel() * values.element_size() // self.num_ranks
        self.ledger.count_sent(kind, num_bytes, 0)
        self.ledger.count_received(kind, num_bytes)

    @contextmanager
    def translate_errors(self, kind: str, peer: str) -> Iterator[None]:
        """Raise errors of torch.distributed as CommError with rank, position, message and cause."""
        try:
            yield
        except RuntimeError as error:
            message = re.sub(r"^\[[^\]]*\] ?", "", str(error).strip())  # drops the source line in gloo
            cause = message.splitlines()[0].partition(" This is typically")[0] if message else type(error).__name__
            raise self.error(kind, peer, cause) from error

    def error(self, kind: str, peer: str, cause: str) -> CommError:
        """Build the error of a failed operation, with rank and position."""
        ledger = self.ledger
        where = f"epoch {ledger.epoch_now}, step {ledger.step_now}, {ledger.phase_now}"
        return CommError(f"rank {self.rank} stopped in {where}: {kind} {peer} failed: {cause}")


UP, DOWN = "up", "down"
"""Directions of messages in an ``OrderedPipeline``: to higher and to lower ranks."""

IssueMessages = Callable[[str, Mapping[int, Tensor], Mapping[int, int]], Mapping[int, Work]]
"""``issue(direction, sends, counts)``: start sends and receives of one direction as one operation, by rank. Operations
of a direction are matched in the order in which ranks issue them. Returns the receives."""


class OrderedPipeline(MessagePipeline):
    """A pipeline whose operations cannot deadlock, even if every one blocked the host until its peers have issued it.

    Each direction is a channel of its own. In ascending order of keys, a rank issues on *up* its receives of a key,
    then its sends of that key, and likewise on *down*. Consider the pending message with the smallest (key, direction,
    sending rank): all that its two ranks issue before it is complete, and what its sender computes before needs
    messages of smaller keys only. So it completes, and then the next. Receives are issued as late as this order allows
    for sends, but do not wait for this rank's computation.
    """

    def __init__(self, rank: int, receives: Mapping[tuple[int, int], int], issue: IssueMessages) -> None:
        self._rank, self._issue = rank, issue
        self._due: deque[tuple[int, dict[int, int]]] = deque()  # receives that are not issued, by key
        for (key, src), num_rows in sorted(receives.items()):
            if not self._due or self._due[-1][0] != key:
                self._due.append((key, {}))
            self._due[-1][1][src] = num_rows
        self._issued: dict[tuple[int, int], Work] = {}

    def send(self, key: int, rows: Mapping[int, Tensor]) -> None:
        self._issue_receives(below=key)
        due = self._due.popleft()[1] if self._due and self._due[0][0] == key else {}
        self._issue_key(key, due, rows)

    def receive(self, key: int, src: int) -> Tensor:
        self._issue_receives(below=key + 1)
        return self._issued.pop((key, src)).wait()

    def _issue_receives(self, *, below: int) -> None:
        while self._due and self._due[0][0] < below:
            self._issue_key(*self._due.popleft(), {})

    def _issue_key(self, key: int, counts: Mapping[int, int], rows: Mapping[int, Tensor]) -> None:
        for direction in (UP, DOWN):
            receives = {src: count for src, count in counts.items() if (src < self._rank) == (direction == UP)}
            sends = {dst: each for dst, each in rows.items() if (dst > self._rank) == (direction == UP)}
            if receives:
                works = self._issue(direction, {}, receives)
                self._issued.update({(key, src): work for src, work in works.items()})
            if sends:
                self._issue(direction, sends, {})


class GlooPlane(DataPlane):
    """Rows over gloo: host tensors, and GPU tensors by way of pinned host memory.

    Messages of the default process group, and background sums of another. Ranks may share a GPU. Messages travel as
    soon as the receiver has posted its receive, therefore receives are posted as early as possible.
    """

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
