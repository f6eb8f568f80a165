"""Communication over a torch.distributed process group with gloo.

GPU tensors are staged in pinned host memory. Unlike with NCCL, ranks may share a GPU and tagged messages of a pair may
overtake each other.
"""

from __future__ import annotations

import atexit
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from strobe.comm.base import Comm, CommError, ControlChannel, Work, check_message
from strobe.comm.ledger import Ledger
from strobe.comm.rendezvous import choose_interface, create_round_store, enable_tcp_keepalive

DEADLINE_S = 120.0
MAX_RANK_0_ALONE_S = 6 * 3600.0
"""Longest wait for rank 0 while it works alone: partitioning a large graph may take an hour."""

CONTROL_KIND = "control"
_MESSAGE_BYTES = 8
_NO_MESSAGE = -1
"""Value of the receive buffer until the next message arrives."""

_ALL, _FROM_0 = "of all ranks", "from rank 0"


def join(deadline_s: float = DEADLINE_S, start_s: float | None = None) -> ProcessGroupComm:
    """Join the process group that the environment names, as torchrun sets it (RANK, WORLD_SIZE, MASTER_ADDR, ...).

    Args:
        deadline_s: how long a message may take.
        start_s: how long other ranks may take to join; the deadline by default.

    Raises:
        CommError: if this rank cannot reach the other ranks.
    """
    start_s, deadline = start_s or deadline_s, timedelta(seconds=deadline_s)
    choose_interface()
    try:
        store, rank, num_ranks = next(rendezvous("env://", timeout=timedelta(seconds=start_s)))
        store = create_round_store(store, rank, num_ranks, start_s)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=num_ranks, timeout=deadline)
    except (RuntimeError, ValueError) as error:
        raise CommError(f"this rank could not join the others: {str(error).splitlines()[0]}") from error
    return ProcessGroupComm(deadline_s)


class ProcessGroupComm(Comm):
    """Communication of one of several ranks. The process group must be initialized (``join``)."""

    def __init__(self, deadline_s: float = DEADLINE_S) -> None:
        self.rank, self.num_ranks = dist.get_rank(), dist.get_world_size()
        self.ledger = Ledger()
        self.deadline = timedelta(seconds=deadline_s)
        self._pending_sends: list[tuple[Any, Tensor, str, int]] = []
        self._control_channels: list[ControlChannel] = []
        with self.translate_errors("joining", "all ranks"):
            # Collectives of one group must start in one order; background all-reduces are in an order of their own.
            self._async_group = dist.new_group(timeout=self.deadline)
            self._rank_0_timeout = timedelta(seconds=max(MAX_RANK_0_ALONE_S, deadline_s))
            self._rank_0_group = dist.new_group(timeout=self._rank_0_timeout)
        enable_tcp_keepalive(deadline_s)

    def send(self, dst: int, rows: Tensor, *, kind: str, tag: int = 0) -> None:
        rows = _to_host(rows.detach().contiguous())
        self.ledger.count_sent(kind, rows.numel() * rows.element_size(), len(rows))
        with self.translate_errors(kind, f"sending to rank {dst}"):
            work = dist.isend(rows, dst, tag=tag)
        self._pending_sends.append((work, rows, kind, dst))  # keeps the buffer alive until the rows have left
        if len(self._pending_sends) > 256:
            self._pending_sends = [pending for pending in self._pending_sends if not pending[0].is_completed()]

    def receive(self, src: int, like: Tensor, num_rows: int, *, kind: str, tag: int = 0) -> Work:
        rows = torch.empty(num_rows, *like.shape[1:], dtype=like.dtype, pin_memory=like.is_cuda)
        self.ledger.count_received(kind, rows.numel() * rows.element_size())
        with self.translate_errors(kind, f"receiving from rank {src}"):
            work = dist.irecv(rows, src, tag=tag)
        return _PendingWork(self, work, rows, like.device, kind, f"from rank {src}")

    def wait_sends(self) -> None:
        for work, _, kind, dst in self._pending_sends:
            self.wait_work(work, kind, f"to rank {dst}")
        self._pending_sends.clear()

    def all_reduce(self, values: Tensor, *, kind: str) -> Tensor:
        total = _to_host(values.detach()) if values.is_cuda else values.detach().clone()
        self._count_all_reduce(kind, total)
        self._run_collective(kind, _ALL, lambda: dist.all_reduce(total, async_op=True))
        return total.to(values.device)

    def all_reduce_async(self, values: Tensor, *, kind: str) -> Work:
        self._count_all_reduce(kind, values)
        total = _to_host(values)
        with self.translate_errors(kind, _ALL):
            work = dist.all_reduce(total, group=self._async_group, async_op=True)
        return _PendingWork(self, work, total, values.device, kind, _ALL)

    def all_reduce_max(self, values: list[float], *, kind: str) -> list[float]:
        largest = torch.tensor(values, dtype=torch.float64)
        self._count_all_reduce(kind, largest)
        self._run_collective(kind, _ALL, lambda: dist.all_reduce(largest, dist.ReduceOp.MAX, async_op=True))
        return [float(value) for value in largest.tolist()]

    def all_gather_object(self, value: Any, *, kind: str) -> list[Any]:
        payload = _pickle_to_tensor(value)
        sizes = torch.zeros(self.num_ranks, dtype=torch.int64)
        sizes[self.rank] = len(payload)
        sizes = self.all_reduce(sizes, kind=kind)
        padded = torch.zeros(int(sizes.max()), dtype=torch.uint8)
        padded[: len(payload)] = payload
        self.ledger.count_sent(kind, (self.num_ranks - 1) * len(padded), 0)
        self.ledger.count_received(kind, (self.num_ranks - 1) * len(padded))
        parts = list(torch.zeros(self.num_ranks, len(padded), dtype=torch.uint8).unbind())
        self._run_collective(kind, _ALL, lambda: dist.all_gather(parts, padded, async_op=True))
        return [_unpickle_tensor(part[:size]) for part, size in zip(parts, sizes.tolist(), strict=True)]

    def gather_object(self, value: Any, *, kind: str) -> list[Any]:
        if self.rank:
            payload = _pickle_to_tensor(value)
            self.send(0, torch.tensor([[len(payload)]]), kind=kind)
            self.send(0, payload, kind=kind)
            return []
        values = [value]
        for src in range(1, self.num_ranks):
            size = int(self.receive(src, torch.empty(0, 1, dtype=torch.int64), 1, kind=kind).wait())
            values.append(
                _unpickle_tensor(self.receive(src, torch.empty(0, dtype=torch.uint8), size, kind=kind).wait())
            )
        return values

    def broadcast_object(self, value: Any, *, kind: str) -> Any:
        payload = _pickle_to_tensor(value) if self.rank == 0 else torch.empty(0, dtype=torch.uint8)
        size = int(self.all_reduce(torch.tensor([len(payload)]), kind=kind))
        if self.rank == 0:
            self.ledger.count_sent(kind, (self.num_ranks - 1) * size, 0)
        else:
            payload = torch.empty(size, dtype=torch.uint8)
            self.ledger.count_received(kind, size)
        self._run_collective(kind, _FROM_0, lambda: dist.broadcast(payload, 0, async_op=True))
        return value if self.rank == 0 else _unpickle_tensor(payload)

    @contextmanager
    def rank_0_alone(self, phase: str) -> Iterator[None]:
        with self.ledger.phase(phase, alone=self.rank == 0):
            yield
            self._run_collective(
                phase,
                _FROM_0,
                lambda: dist.broadcast(torch.zeros(1), 0, group=self._rank_0_group, async_op=True),
                self._rank_0_timeout,
            )

    def open_control_channel(self) -> ControlChannel:
        channel = ProcessGroupControlChannel(self)
        self._control_channels.append(channel)
        return channel

    def close(self) -> None:
        self.wait_sends()
        for channel in self._control_channels:
            channel.close()
        dist.destroy_process_group()

    def _run_collective(
        self, kind: str, peer: str, start: Callable[[], Any], deadline: timedelta | None = None
    ) -> None:
        with self.translate_errors(kind, peer):
            work = start()
        self.wait_work(work, kind, peer, collective=True, deadline=deadline)

    def wait_work(
        self, work: Any, kind: str, peer: str, *, collective: bool = False, deadline: timedelta | None = None
    ) -> None:
        """Wait for an operation of torch.distributed, up to the deadline, and count the seconds."""
        start, deadline = perf_counter(), deadline or self.deadline
        with self.translate_errors(kind, peer):
            if not work.wait(deadline):
                raise RuntimeError(f"no answer for {deadline.total_seconds():g} s")
        self.ledger.seconds["straggler_wait_s" if collective else "exposed_comm_s"] += perf_counter() - start

    def _count_all_reduce(self, kind: str, values: Tensor) -> None:
        """A ring all-reduce sends and receives 2 (W - 1) / W of its bytes; counted so for every algorithm."""
        num_bytes = 2 * (self.num_ranks - 1) * values.numel() * values.element_size() // self.num_ranks
        self.ledger.count_sent(kind, num_bytes, 0)
        self.ledger.count_received(kind, num_bytes)

    @contextmanager
    def translate_errors(self, kind: str, peer: str) -> Iterator[None]:
        """Raise errors of torch.distributed as CommError with rank, position, message and cause."""
        try:
            yield
        except RuntimeError as error:
            ledger = self.ledger
            message = re.sub(r"^\[[^\]]*\] ?", "", str(error).strip())  # drops the source line in gloo
            cause = message.splitlines()[0].partition(" This is typically")[0] if message else type(error).__name__
            raise CommError(
                f"rank {self.rank} stopped in epoch {ledger.epoch_now}, step {ledger.step_now}, {ledger.phase_now}: "
                f"{kind} {peer} failed: {cause}"
            ) from error


class _PendingWork(Work):
    """A pending operation. The time from its start to ``wait`` counts as overlapped."""

    def __init__(
        self, comm: ProcessGroupComm, work: Any, rows: Tensor, device: torch.device, kind: str, peer: str
    ) -> None:
        self._comm, self._work, self._rows, self._device = comm, work, rows, device
        self._kind, self._peer = kind, peer
        self._start = perf_counter()

    def wait(self) -> Tensor:
        ledger = self._comm.ledger
        ledger.count_overlapped(self._start)
        self._comm.wait_work(self._work, self._kind, self._peer)
        ledger.end_wait()
        return self._rows.to(self._device, non_blocking=True)  # pinned memory is not reused before it was read


def _to_host(values: Tensor) -> Tensor:
    """Copy GPU tensors into pinned memory, from which gloo can send."""
    return torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(values) if values.is_cuda else values


def _pickle_to_tensor(value: Any) -> Tensor:
    return torch.from_numpy(np.frombuffer(pickle.dumps(value), np.uint8).copy())


def _unpickle_tensor(pickled: Tensor) -> Any:
    return pickle.loads(pickled.numpy().tobytes())


class ProcessGroupControlChannel(ControlChannel):
    """Control channel with a process group of its own. Receivers always have a receive posted for the next message.

    ``poll`` looks at the receive buffer: gloo's ``is_completed`` is true only after a wait, and a wait with a short
    timeout would abort all other operations of the group when it expires.
    """

    def __init__(self, comm: ProcessGroupComm) -> None:
        self._comm = comm
        with comm.translate_errors(CONTROL_KIND, _ALL):
            self._process_group: Any = dist.new_group(backend="gloo", timeout=comm.deadline)
        self._pending_sends: list[tuple[Any, Tensor, int]] = []  # keeps buffers alive until they are received
        self._buffer = torch.full((1,), _NO_MESSAGE)
        self._pending_receive: Any = None
        if comm.rank:
            self._post_receive()
        atexit.register(self.close)  # an open group can abort a failing process before it has reported its error

    def post(self, message: int) -> None:
        assert self._comm.rank == 0, "only rank 0 posts messages"
        check_message(message)
        payload = torch.tensor([message])
        for dst in range(1, self._comm.num_ranks):
            self._comm.ledger.count_sent(CONTROL_KIND, _MESSAGE_BYTES, 0)
            with self._comm.translate_errors(CONTROL_KIND, f"to rank {dst}"):
                self._pending_sends.append((dist.isend(payload, dst, group=self._process_group), payload, dst))

    def poll(self) -> int | None:
        assert self._comm.rank, "rank 0 posts messages and receives none"
        return self.wait() if self._buffer.item() != _NO_MESSAGE else None

    def wait(self) -> int:
        assert self._comm.rank, "rank 0 posts messages and receives none"
        # Also for a message that is visible already: only a part of its bytes may have arrived.
        self._comm.wait_work(self._pending_receive, CONTROL_KIND, _FROM_0, collective=True)
        self._comm.ledger.count_received(CONTROL_KIND, _MESSAGE_BYTES)
        message = int(self._buffer)
        self._post_receive()
        return message

    def flush(self) -> None:
        for work, _, dst in self._pending_sends:
            self._comm.wait_work(work, CONTROL_KIND, f"to rank {dst}", collective=True)
        self._pending_sends.clear()

    def close(self) -> None:
        atexit.unregister(self.close)
        if self._process_group is None or not dist.is_initialized():
            return
        # Pending operations must go before the group that carries them.
        self._pending_sends.clear()
        self._pending_receive = None
        dist.destroy_process_group(self._process_group)
        self._process_group = None

    def _post_receive(self) -> None:
        """Post one receive at a time: of two, the second could complete first."""
        self._buffer.fill_(_NO_MESSAGE)
        with self._comm.translate_errors(CONTROL_KIND, _FROM_0):
            self._pending_receive = dist.irecv(self._buffer, 0, group=self._process_group)
