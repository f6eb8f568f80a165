"""Communication over torch.distributed: control plane and host tensors over gloo, GPU tensors over NCCL or gloo."""

from __future__ import annotations

import atexit
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from strobe.comm import nccl
from strobe.comm.base import Comm, CommError, ControlChannel, MessagePipeline, Work, check_message
from strobe.comm.data_plane import ALL, DataPlane, GlooPlane, Guard
from strobe.comm.rendezvous import bound_tcp_timeouts, choose_interface, create_round_store

DEADLINE_S = 120.0
MAX_RANK_0_ALONE_S = 6 * 3600.0
"""Longest wait for rank 0 while it works alone: partitioning a large graph may take an hour."""

CONTROL_KIND = "control"
_MESSAGE_BYTES = 8
_NO_MESSAGE = -1
"""Value of the receive buffer until the next message arrives."""

_FROM_0 = "from rank 0"


def join(
    deadline_s: float = DEADLINE_S, start_s: float | None = None, *, nccl_device: torch.device | None = None
) -> ProcessGroupComm:
    """Join the process group that the environment names, as torchrun sets it (RANK, WORLD_SIZE, MASTER_ADDR, ...).

    Args:
        deadline_s: how long a message may take.
        start_s: how long other ranks may take to join; the deadline by default.
        nccl_device: this rank's GPU, whose tensors NCCL carries if all ranks name one; None: gloo carries all tensors.

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
    return ProcessGroupComm(deadline_s, nccl_device)


class ProcessGroupComm(Comm):
    """Communication of one of several ranks. The process group must be initialized (``join``)."""

    def __init__(self, deadline_s: float = DEADLINE_S, nccl_device: torch.device | None = None) -> None:
        self.rank, self.num_ranks = dist.get_rank(), dist.get_world_size()
        self.guard = Guard(self.rank, self.num_ranks, deadline_s)
        self.ledger = self.guard.ledger
        self._host_plane = GlooPlane(self.guard)
        self._device_plane: DataPlane | None = None
        self._control_channels: list[ControlChannel] = []
        with self.guard.translate_errors("joining", "all ranks"):
            self._rank_0_timeout = timedelta(seconds=max(MAX_RANK_0_ALONE_S, deadline_s))
            self._rank_0_group = dist.new_group(backend="gloo", timeout=self._rank_0_timeout)
        bound_tcp_timeouts(deadline_s)
        (without_nccl,) = self.all_reduce_max([float(nccl_device is None)], kind="setup")
        if nccl_device is not None and not without_nccl:
            self._device_plane = nccl.NcclPlane(self.guard, nccl_device)

    @property
    def backend(self) -> str:
        return self._device_plane.name if self._device_plane is not None else self._host_plane.name

    @property
    def allows_reordering(self) -> bool:  # type: ignore[override]
        return self._device_plane is None or self._device_plane.allows_reordering

    def all_to_all_rows_async(
        self, sends: Mapping[int, Tensor], counts: Mapping[int, int], like: Tensor, *, kind: str
    ) -> Sequence[Work]:
        return self._plane(like).all_to_all_rows_async(sends, counts, like, kind=kind)

    def open_pipeline(self, receives: Mapping[tuple[int, int], int], like: Tensor, *, kind: str) -> MessagePipeline:
        return self._plane(like).open_pipeline(receives, like, kind=kind)

    def wait_sends(self) -> None:
        self._host_plane.wait_sends()
        if self._device_plane is not None:
            self._device_plane.wait_sends()

    def all_reduce(self, values: Tensor, *, kind: str) -> Tensor:
        return self._plane(values).all_reduce(values, kind=kind)

    def all_reduce_async(self, values: Tensor, *, kind: str) -> Work:
        return self._plane(values).all_reduce_async(values, kind=kind)

    def all_reduce_max(self, values: list[float], *, kind: str) -> list[float]:
        largest = torch.tensor(values, dtype=torch.float64)
        self.guard.count_all_reduce(kind, largest)
        self._run_collective(kind, ALL, lambda: dist.all_reduce(largest, dist.ReduceOp.MAX, async_op=True))
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
        self._run_collective(kind, ALL, lambda: dist.all_gather(parts, padded, async_op=True))
        return [_unpickle_tensor(part[:size]) for part, size in zip(parts, sizes.tolist(), strict=True)]

    def gather_object(self, value: Any, *, kind: str) -> list[Any]:
        plane = self._host_plane
        if self.rank:
            payload = _pickle_to_tensor(value)
            plane.send(0, torch.tensor([[len(payload)]]), kind=kind)
            plane.send(0, payload, kind=kind)
            return []
        values = [value]
        for src in range(1, self.num_ranks):
            size = int(plane.receive(src, torch.empty(0, 1, dtype=torch.int64), 1, kind=kind).wait())
            payload = plane.receive(src, torch.empty(0, dtype=torch.uint8), size, kind=kind).wait()
            values.append(_unpickle_tensor(payload))
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
        if self._device_plane is not None:
            self._device_plane.close()
        dist.destroy_process_group()

    def _run_collective(
        self, kind: str, peer: str, start: Callable[[], Any], deadline: timedelta | None = None
    ) -> None:
        if self._device_plane is not None:
            self._device_plane.check()
        with self.guard.translate_errors(kind, peer):
            work = start()
        self.guard.wait(work, kind, peer, collective=True, deadline=deadline)

    def _plane(self, like: Tensor) -> DataPlane:
        """The data plane that carries tensors as ``like``. Raises if NCCL has failed without being waited for."""
        if self._device_plane is None:
            return self._host_plane
        self._device_plane.check()
        return self._device_plane if like.is_cuda else self._host_plane


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
        with comm.guard.translate_errors(CONTROL_KIND, ALL):
            self._process_group: Any = dist.new_group(backend="gloo", timeout=comm.guard.deadline)
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
            with self._comm.guard.translate_errors(CONTROL_KIND, f"to rank {dst}"):
                self._pending_sends.append((dist.isend(payload, dst, group=self._process_group), payload, dst))

    def poll(self) -> int | None:
        assert self._comm.rank, "rank 0 posts messages and receives none"
        return self.wait() if self._buffer.item() != _NO_MESSAGE else None

    def wait(self) -> int:
        assert self._comm.rank, "rank 0 posts messages and receives none"
        # Also for a message that is visible already: only a part of its bytes may have arrived.
        self._comm.guard.wait(self._pending_receive, CONTROL_KIND, _FROM_0, collective=True)
        self._comm.ledger.count_received(CONTROL_KIND, _MESSAGE_BYTES)
        message = int(self._buffer)
        self._post_receive()
        return message

    def flush(self) -> None:
        for work, _, dst in self._pending_sends:
            self._comm.guard.wait(work, CONTROL_KIND, f"to rank {dst}", collective=True)
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
        with self._comm.guard.translate_errors(CONTROL_KIND, _FROM_0):
            self._pending_receive = dist.irecv(self._buffer, 0, group=self._process_group)
