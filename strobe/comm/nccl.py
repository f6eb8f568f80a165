"""Rows over NCCL: GPU tensors travel from GPU to GPU, and the host does not wait for them.

NCCL has no tags: operations of a communicator are matched by the order in which ranks issue them, and each blocks the
communicator's stream until its peers have issued theirs. A host that waits for its GPU (an allocation, a kernel that is
loaded, a result that is read) then waits for these peers, too. This module is safe under the strictest reading: nothing
would deadlock even if the host waited for every operation at once. Hence

- exchanges of rows are one batch on one communicator, issued in the same order on all ranks (``Comm``);
- messages of pipelines have two communicators, to higher and to lower ranks, and the order of ``OrderedPipeline``;
- sums in the background have a communicator, and so a stream, of their own, and keep the common order.

Buffers stay referenced until the operations that use them are complete.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import ErrorType

from strobe.comm.base import MessagePipeline, Work
from strobe.comm.data_plane import ALL, DOWN, UP, DataPlane, Guard, OrderedPipeline

_ENVIRONMENT = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "2",  # abort communicators, but leave it to this process to report and end
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_CPP_LOG_LEVEL": "FATAL",  # the same failures, as pages of C++ frames
    "CUDA_DEVICE_MAX_CONNECTIONS": "32",  # streams of several communicators must not wait in one hardware queue
}
_ENVIRONMENT_ON_SHARED_GPUS = {"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}


def set_environment(rank: int, *, shares_gpu: bool, one_host: bool) -> None:
    """Set what NCCL, CUDA and torch read when they start; variables that the user has set stay.

    Args:
        rank: the rank.
        shares_gpu: several ranks of this machine use one GPU. NCCL refuses that among ranks of one host, but connects
            them by sockets if each rank says that it is a host of its own.
        one_host: all ranks are on this machine.
    """
    values = dict(_ENVIRONMENT)
    if shares_gpu:
        values |= _ENVIRONMENT_ON_SHARED_GPUS | {"NCCL_HOSTID": f"{socket.gethostname()}-{rank}"}
        values |= {"NCCL_SOCKET_IFNAME": "lo"} if one_host else {}
    for name, value in values.items():
        os.environ.setdefault(name, value)


class NcclPlane(DataPlane):
    """Four communicators: rows and sums that are needed at once, pipelines in two directions, and background sums."""

    name: ClassVar[str] = "nccl"
    allows_reordering: ClassVar[bool] = False

    def __init__(self, guard: Guard, device: torch.device) -> None:
        self._guard, self._device = guard, device
        self._pending_sends: deque[Any] = deque()
        with guard.translate_errors("joining", "all ranks"):
            self._groups: list[Any] = [
                dist.new_group(backend="nccl", timeout=guard.deadline, device_id=device) for _ in range(4)
            ]
            for group in self._groups:  # connections are made by the first operation, and the host waits for them
                dist.all_reduce(torch.zeros(1, device=device), group=group)
        self._rows, self._sums = self._groups[:2]
        self._directions = {UP: self._groups[2], DOWN: self._groups[3]}
        self._receive_stream = torch.cuda.Stream(device)
        """Receives of pipelines are issued from here: they do not wait for this rank's computation."""
        guard.ledger.clock = DeviceClock(device)

    def all_to_all_rows_async(
        self, sends: Mapping[int, Tensor], counts: Mapping[int, int], like: Tensor, *, kind: str
    ) -> Sequence[Work]:
        sends = {dst: rows for dst, rows in sends.items() if len(rows)}
        counts = {src: count for src, count in sorted(counts.items()) if count}
        return list(self._issue(self._rows, sends, counts, like, kind).values())

    def open_pipeline(self, receives: Mapping[tuple[int, int], int], like: Tensor, *, kind: str) -> MessagePipeline:
        like = like.detach()[:0]

        def issue(direction: str, sends: Mapping[int, Tensor], counts: Mapping[int, int]) -> Mapping[int, Work]:
            group = self._directions[direction]
            if not counts:
                return self._issue(group, sends, {}, like, kind)
            with torch.cuda.stream(self._receive_stream):
                return self._issue(group, sends, counts, like, kind)

        return OrderedPipeline(self._guard.rank, receives, issue)

    def all_reduce(self, values: Tensor, *, kind: str) -> Tensor:
        return self._sum(values.detach().clone(), self._rows, kind, "straggler_wait_s").wait()

    def all_reduce_async(self, values: Tensor, *, kind: str) -> Work:
        return self._sum(values, self._sums, kind, "exposed_comm_s")

    def wait_sends(self) -> None:
        """Let the compute stream wait for all sends. The host does not wait."""
        with self._guard.translate_errors("sends", "to other ranks"):
            while self._pending_sends:
                self._pending_sends.popleft().wait()

    def check(self) -> None:
        """Raise if a communicator was aborted: operations on aborted communicators end and leave any result."""
        for group in self._groups:
            state = group._get_backend(self._device).get_error()
            if state != ErrorType.SUCCESS:
                slow = state == ErrorType.TIMEOUT
                cause = f"no answer for {self._guard.deadline.total_seconds():g} s" if slow else "a connection was lost"
                raise self._guard.error("nccl", ALL, cause)

    def close(self) -> None:
        for group in self._groups:
            dist.destroy_process_group(group)
        self._groups.clear()

    def _issue(
        self, group: Any, sends: Mapping[int, Tensor], counts: Mapping[int, int], like: Tensor, kind: str
    ) -> dict[int, Work]:
        """Issue sends and receives as one operation of a communicator. Returns the receives by rank."""
        ops, received = [], {}
        for dst, rows in sorted(sends.items()):
            assert rows.is_cuda, "NCCL carries tensors on GPUs only"
            self._guard.count_sent(kind, rows)
            ops.append(dist.P2POp(dist.isend, rows.detach().contiguous(), dst, group))
        for src, count in sorted(counts.items()):
            received[src] = like.new_empty(count, *like.shape[1:])
            self._guard.ledger.count_received(kind, received[src].numel() * received[src].element_size())
            ops.append(dist.P2POp(dist.irecv, received[src], src, group))
        if not ops:
            return {}
        self.check()
        with self._guard.translate_errors(kind, "with other ranks"):
            (work,) = dist.batch_isend_irecv(ops)
        if sends:
            self._keep_until_sent(work)
        return {src: StreamWork(self._guard, work, rows, "exposed_comm_s") for src, rows in received.items()}

    def _keep_until_sent(self, work: Any) -> None:
        """Keep an operation, which references the rows that it sends, until it is complete."""
        while self._pending_sends and self._pending_sends[0].is_completed():
            self._pending_sends.popleft()
        self._pending_sends.append(work)

    def _sum(self, total: Tensor, group: Any, kind: str, seconds: str) -> Work:
        self._guard.count_all_reduce(kind, total)
        self.check()
        with self._guard.translate_errors(kind, ALL):
            work = dist.all_reduce(total, group=group, async_op=True)
        return StreamWork(self._guard, work, total, seconds)


class StreamWork(Work):
    """An operation whose result the compute stream waits for, not the host.

    The seconds that the stream waits are counted under ``seconds``, those from issue to that wait as overlapped.
    """

    def __init__(self, guard: Guard, work: Any, rows: Tensor, seconds: str) -> None:
        self._ledger, self._work, self._rows, self._seconds = guard.ledger, work, rows, seconds
        self._issued = guard.ledger.now()

    def wait(self) -> Tensor:
        needed = self._ledger.now()
        self._work.wait()
        self._ledger.count_wait(self._seconds, self._issued, needed)
        self._rows.record_stream(torch.cuda.current_stream())  # another stream may have allocated them
        return self._rows


class DeviceClock:
    """Times at which a GPU reaches points of its current stream. Reading one waits for the GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.restart()

    def restart(self) -> None:
        """Wait for the GPU, and measure later times from now."""
        self._origin = self.mark()
        self._origin.synchronize()
        self._origin_s = perf_counter()

    def mark(self) -> torch.cuda.Event:
        """Mark this point of the current stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def seconds(self, mark: torch.cuda.Event) -> float:
        """Return the time of a mark, on the clock of ``perf_counter``."""
        mark.synchronize()
        return float(self._origin_s + self._origin.elapsed_time(mark) / 1e3)
