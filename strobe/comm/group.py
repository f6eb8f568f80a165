"""Ranks as processes of a torch.distributed group, over gloo. What is on a GPU travels by way of the host's memory: so
ranks may share a GPU, and messages of a pair may overtake each other, which NCCL knows neither of."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from strobe.comm.base import Arrival, Comm, CommError, Line
from strobe.comm.interface import choose_interface
from strobe.comm.keepalive import keep_links_alive
from strobe.comm.ledger import Ledger
from strobe.comm.line import GroupLine
from strobe.comm.round import fresh

DEADLINE_S = 120.0
LONGEST_ALONE_S = 6 * 3600.0
"""How long ranks wait for rank 0 at most while it works alone: placing a large graph may take an hour."""


class Group(Comm):
    """One rank of many. The process group must be there (``strobe.comm.join``)."""

    def __init__(self, deadline_s: float = DEADLINE_S) -> None:
        self.rank, self.num_ranks = dist.get_rank(), dist.get_world_size()
        self.ledger = Ledger()
        self.deadline = timedelta(seconds=deadline_s)
        self._leaving: list[tuple[Any, Tensor, str, int]] = []
        self._lines: list[Line] = []
        # Sums in the background have a group of their own: on one group all must come in the same order.
        with self.named("joining", "all ranks"):
            self._later = dist.new_group(timeout=self.deadline)
            # Its deadline is not that of messages: ranks wait here while rank 0 works alone.
            self._patient = dist.new_group(timeout=_longest(deadline_s))
        keep_links_alive(deadline_s)

    def send(self, to: int, rows: Tensor, *, kind: str, tag: int = 0) -> None:
        rows = _on_host(rows.detach().contiguous())
        self.ledger.count_sent(kind, rows.numel() * rows.element_size(), len(rows))
        with self.named(kind, f"sending to rank {to}"):
            work = dist.isend(rows, to, tag=tag)
        self._leaving.append((work, rows, kind, to))  # rows stay until they have left
        if len(self._leaving) > 256:
            self._leaving = [message for message in self._leaving if not message[0].is_completed()]

    def receive(self, source: int, like: Tensor, num_rows: int, *, kind: str, tag: int = 0) -> Arrival:
        rows = torch.empty(num_rows, *like.shape[1:], dtype=like.dtype, pin_memory=like.is_cuda)
        self.ledger.count_received(kind, rows.numel() * rows.element_size())
        with self.named(kind, f"asking rank {source}"):
            work = dist.irecv(rows, source, tag=tag)
        return _Message(self, work, rows, like.device, kind, f"from rank {source}")

    def settle(self) -> None:
        for work, _, kind, to in self._leaving:
            self.finished(work, kind, f"to rank {to}")
        self._leaving.clear()

    def sum(self, values: Tensor, *, kind: str) -> Tensor:
        total = _on_host(values.detach()) if values.is_cuda else values.detach().clone()
        self._count_both(kind, total)
        with self.named(kind, "of all ranks"):
            work = dist.all_reduce(total, async_op=True)
        self.finished(work, kind, "of all ranks", waiting=True)
        return total.to(values.device)

    def sum_later(self, values: Tensor, *, kind: str) -> Arrival:
        self._count_both(kind, values)
        total = _on_host(values)
        with self.named(kind, "of all ranks"):
            work = dist.all_reduce(total, group=self._later, async_op=True)
        return _Message(self, work, total, values.device, kind, "of all ranks")

    def largest(self, values: list[float], *, kind: str) -> list[float]:
        most = torch.tensor(values, dtype=torch.float64)
        self._count_both(kind, most)
        with self.named(kind, "of all ranks"):
            work = dist.all_reduce(most, dist.ReduceOp.MAX, async_op=True)
        self.finished(work, kind, "of all ranks", waiting=True)
        return [float(value) for value in most.tolist()]

    def gather(self, value: Any, *, kind: str) -> list[Any]:
        mine = _pickled(value)
        sizes = torch.zeros(self.num_ranks, dtype=torch.int64)
        sizes[self.rank] = len(mine)
        sizes = self.sum(sizes, kind=kind)
        everyone = torch.zeros(self.num_ranks, int(sizes.max()), dtype=torch.uint8)
        mine = torch.cat([mine, mine.new_zeros(everyone.shape[1] - len(mine))])
        self.ledger.count_sent(kind, (self.num_ranks - 1) * len(mine), 0)
        self.ledger.count_received(kind, (self.num_ranks - 1) * len(mine))
        parts = list(everyone.unbind())
        with self.named(kind, "of all ranks"):
            work = dist.all_gather(parts, mine, async_op=True)
        self.finished(work, kind, "of all ranks", waiting=True)
        return [_read(part[:size]) for part, size in zip(parts, sizes.tolist(), strict=True)]

    def collect(self, value: Any, *, kind: str) -> list[Any]:
        if self.rank:
            told = _pickled(value)
            self.send(0, torch.tensor([[len(told)]]), kind=kind)
            self.send(0, told, kind=kind)
            return []
        found = [value]
        for source in range(1, self.num_ranks):
            size = int(self.receive(source, torch.empty(0, 1, dtype=torch.int64), 1, kind=kind).wait())
            found.append(_read(self.receive(source, torch.empty(0, dtype=torch.uint8), size, kind=kind).wait()))
        return found

    def share(self, value: Any, *, kind: str) -> Any:
        told = _pickled(value) if self.rank == 0 else torch.empty(0, dtype=torch.uint8)
        size = int(self.sum(torch.tensor([len(told)]), kind=kind))
        told = told if self.rank == 0 else torch.empty(size, dtype=torch.uint8)
        if self.rank == 0:
            self.ledger.count_sent(kind, (self.num_ranks - 1) * size, 0)
        else:
            self.ledger.count_received(kind, size)
        with self.named(kind, "from rank 0"):
            work = dist.broadcast(told, 0, async_op=True)
        self.finished(work, kind, "from rank 0", waiting=True)
        return value if self.rank == 0 else _read(told)

    @contextmanager
    def rank_0_alone(self, phase: str) -> Iterator[None]:
        with self.ledger.phase(phase, alone=self.rank == 0):
            yield
            with self.named(phase, "from rank 0"):
                work = dist.broadcast(torch.zeros(1), 0, group=self._patient, async_op=True)
            self.finished(work, phase, "from rank 0", waiting=True, deadline=_longest(self.deadline.total_seconds()))

    def line(self) -> Line:
        made = GroupLine(self)
        self._lines.append(made)
        return made

    def close(self) -> None:
        self.settle()
        for line in self._lines:
            line.close()
        dist.destroy_process_group()

    def finished(
        self, work: Any, kind: str, whom: str, *, waiting: bool = False, deadline: timedelta | None = None
    ) -> None:
        """Waits for an operation, up to the deadline; the time is counted."""
        start, deadline = perf_counter(), deadline or self.deadline
        with self.named(kind, whom):
            if not work.wait(deadline):
                raise RuntimeError(f"no answer for {deadline.total_seconds():g} s")
        self.ledger.seconds["waiting" if waiting else "exposed"] += perf_counter() - start

    def _count_both(self, kind: str, values: Tensor) -> None:
        """A sum over all ranks sends and receives 2 (W - 1) / W of its bytes, whoever carries it out."""
        num_bytes = 2 * (self.num_ranks - 1) * values.numel() * values.element_size() // self.num_ranks
        self.ledger.count_sent(kind, num_bytes, 0)
        self.ledger.count_received(kind, num_bytes)

    @contextmanager
    def named(self, kind: str, whom: str) -> Iterator[None]:
        """Errors of the library below, as ours: which rank, when, doing what, and why."""
        try:
            yield
        except RuntimeError as error:
            at = self.ledger
            said = re.sub(r"^\[[^\]]*\] ?", "", str(error).strip())  # where in the library below is nobody's concern
            cause = said.splitlines()[0].partition(" This is typically")[0] if said else type(error).__name__
            raise CommError(
                f"rank {self.rank} stopped in epoch {at.epoch_now}, step {at.step_now}, {at.phase_now}: "
                f"{kind} {whom} failed: {cause}"
            ) from error


class _Message(Arrival):
    """Rows on their way. What passes between asking and waiting is hidden behind this rank's own work."""

    def __init__(self, group: Group, work: Any, rows: Tensor, to: torch.device, kind: str, whom: str) -> None:
        self._group, self._work, self._rows, self._to, self._kind, self._whom = group, work, rows, to, kind, whom
        self._asked = perf_counter()

    def wait(self) -> Tensor:
        ledger = self._group.ledger
        ledger.count_hidden(self._asked)
        self._group.finished(self._work, self._kind, self._whom)
        ledger.waited()
        return self._rows.to(self._to, non_blocking=True)  # locked memory is not used again before it was read


def _longest(deadline_s: float) -> timedelta:
    return timedelta(seconds=max(LONGEST_ALONE_S, deadline_s))


def _on_host(values: Tensor) -> Tensor:
    """Values that gloo can send: those of a GPU are copied into locked memory, once they are computed."""
    return torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(values) if values.is_cuda else values


def _pickled(value: Any) -> Tensor:
    return torch.from_numpy(np.frombuffer(pickle.dumps(value), np.uint8).copy())


def _read(pickled: Tensor) -> Any:
    return pickle.loads(pickled.numpy().tobytes())


def join(deadline_s: float = DEADLINE_S, start_s: float | None = None) -> Group:
    """Joins the ranks that the environment names, as torchrun sets it (RANK, WORLD_SIZE, MASTER_ADDR, …).

    ``start_s`` is how long others may take until they are here, where that can be longer than the deadline.
    """
    start_s, deadline = start_s or deadline_s, timedelta(seconds=deadline_s)
    choose_interface()
    try:
        store, rank, num_ranks = next(rendezvous("env://", timeout=timedelta(seconds=start_s)))
        store = fresh(store, rank, num_ranks, start_s)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=num_ranks, timeout=deadline)
    except (RuntimeError, ValueError) as error:
        raise CommError(f"this rank could not join the others: {str(error).splitlines()[0]}") from error
    return Group(deadline_s)
