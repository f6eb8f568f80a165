"""Ranks as threads of one process: the calls of ``Comm``, a thousand times faster to start than processes."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from importlib import import_module
from queue import Empty, Queue
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

from strobe.comm import Comm, ControlChannel, Ledger, MessagePipeline, Work
from strobe.comm.base import CompletedWork
from strobe.comm.data_plane import OrderedPipeline

Result = TypeVar("Result")
DEADLINE_S = 20.0


class Channel:
    """Messages of one rank to another on one communicator: sends and receives in order of issue."""

    def __init__(self) -> None:
        self.sends: list[tuple[str, Tensor] | None] = []
        self.receives: list[str] = []


class Hub:
    """State that the threads share."""

    def __init__(self, num_ranks: int) -> None:
        self.num_ranks = num_ranks
        self.gate = threading.Barrier(num_ranks, timeout=DEADLINE_S)
        self.table: list[Any] = [None] * num_ranks
        self.control: dict[tuple[int, int], Queue[int]] = defaultdict(Queue)
        self.lock = threading.Lock()
        self.changed = threading.Condition()
        self.failed = False
        self.channels: dict[tuple[str, int, int], Channel] = defaultdict(Channel)
        self.sums: dict[int, dict[int, tuple[str, Tensor]]] = defaultdict(dict)

    def wait_for(self, ready: Callable[[], bool], name: str) -> None:
        """Wait, with the condition held, until other ranks have done what makes ``ready`` true."""
        self.changed.notify_all()
        assert self.changed.wait_for(lambda: self.failed or ready(), DEADLINE_S), f"{name}: ranks wait for each other"
        if self.failed:
            raise threading.BrokenBarrierError

    def abort(self) -> None:
        """Wake all ranks: one has failed."""
        self.gate.abort()
        with self.changed:
            self.failed = True
            self.changed.notify_all()


class ThreadComm(Comm):
    """Communication of one of several ranks in one process, by the rules of NCCL at their strictest.

    There are no tags: messages of a pair of ranks on a communicator are matched by order, and a mismatch of kind, shape
    or dtype is an error. Every operation blocks until all its peers have issued theirs, as if the host waited for the
    device at once; background sums are in one order with all other operations.
    """

    allows_reordering = False

    def __init__(self, hub: Hub, rank: int) -> None:
        self.rank, self.num_ranks, self.ledger, self._hub = rank, hub.num_ranks, Ledger(), hub
        self._sums = self._channels = 0

    def all_to_all_rows_async(
        self, sends: Mapping[int, Tensor], counts: Mapping[int, int], like: Tensor, *, kind: str
    ) -> Sequence[Work]:
        sends = {dst: rows for dst, rows in sends.items() if len(rows)}
        counts = {src: count for src, count in sorted(counts.items()) if count}
        return list(self._issue("rows", sends, counts, like, kind).values())

    def open_pipeline(self, receives: Mapping[tuple[int, int], int], like: Tensor, *, kind: str) -> MessagePipeline:
        like = like.detach()[:0]

        def issue(direction: str, sends: Mapping[int, Tensor], counts: Mapping[int, int]) -> Mapping[int, Work]:
            return self._issue(direction, sends, counts, like, kind)

        return OrderedPipeline(self.rank, receives, issue)

    def _issue(
        self, communicator: str, sends: Mapping[int, Tensor], counts: Mapping[int, int], like: Tensor, kind: str
    ) -> dict[int, Work]:
        """Issue sends and receives as one operation, and wait until all peers have issued theirs."""
        pending: list[Callable[[], bool]] = []
        arriving: dict[int, tuple[Channel, int]] = {}
        with self._hub.changed:
            for dst, rows in sorted(sends.items()):
                assert len(rows), "empty messages are not sent"
                assert dst != self.rank
                assert (rows.dtype, rows.device) == (like.dtype, like.device), kind
                self.ledger.count_sent(kind, rows.numel() * rows.element_size(), len(rows))
                channel = self._hub.channels[communicator, self.rank, dst]
                channel.sends.append((kind, rows.detach().clone()))
                pending.append(partial(_is_longer, channel.receives, len(channel.sends) - 1))
            for src, count in sorted(counts.items()):
                assert count, "empty messages are not expected"
                self.ledger.count_received(kind, count * like.shape[1:].numel() * like.element_size())
                channel = self._hub.channels[communicator, src, self.rank]
                channel.receives.append(kind)
                arriving[src] = channel, len(channel.receives) - 1
                pending.append(partial(_is_longer, channel.sends, len(channel.receives) - 1))
            self._hub.wait_for(lambda: all(ready() for ready in pending), f"{kind} of rank {self.rank}")
            received: dict[int, Work] = {}
            for src, (channel, number) in arriving.items():
                message, channel.sends[number] = channel.sends[number], None
                assert message is not None
                sent_kind, rows = message
                assert sent_kind == kind, f"rank {src} sent {sent_kind}, rank {self.rank} expects {kind}"
                assert rows.shape == (counts[src], *like.shape[1:]), (kind, src, self.rank, rows.shape)
                assert rows.dtype == like.dtype, kind
                received[src] = CompletedWork(rows)
        return received

    def wait_sends(self) -> None:
        pass

    def all_reduce(self, values: Tensor, *, kind: str) -> Tensor:
        parts: list[Tensor] = self.all_gather_object(values.detach(), kind=kind)
        assert all(each.shape == values.shape and each.dtype == values.dtype for each in parts), kind
        total = parts[0].clone()
        for each in parts[1:]:
            total += each
        return total

    def all_reduce_async(self, values: Tensor, *, kind: str) -> Work:
        number, self._sums = self._sums, self._sums + 1
        with self._hub.changed:
            self._hub.sums[number][self.rank] = kind, values.detach().clone()
            self._hub.changed.notify_all()
        work = _PendingSum(self._hub, number, values, f"{kind} of rank {self.rank}")
        if not self.allows_reordering:
            work.wait()
        return work

    def all_reduce_max(self, values: list[float], *, kind: str) -> list[float]:
        return [max(each) for each in zip(*self.all_gather_object(values, kind=kind), strict=True)]

    def all_gather_object(self, value: Any, *, kind: str) -> list[Any]:
        self._hub.gate.wait()
        self._hub.table[self.rank] = (kind, value)
        self._hub.gate.wait()
        table = deepcopy(self._hub.table)  # processes share no objects
        self._hub.gate.wait()
        assert {each for each, _ in table} == {kind}, "ranks are in different collectives"
        return [each for _, each in table]

    def gather_object(self, value: Any, *, kind: str) -> list[Any]:
        values = self.all_gather_object(value, kind=kind)
        return values if self.rank == 0 else []

    def broadcast_object(self, value: Any, *, kind: str) -> Any:
        return self.all_gather_object(value, kind=kind)[0]

    @contextmanager
    def rank_0_alone(self, phase: str) -> Iterator[None]:
        with self.ledger.phase(phase):
            yield
            self._hub.gate.wait()

    def open_control_channel(self) -> ControlChannel:
        self._channels += 1
        with self._hub.lock:
            queues = [self._hub.control[self._channels, rank] for rank in range(self.num_ranks)]
        return _ThreadControlChannel(self, queues)

    def close(self) -> None:
        pass


class _ThreadControlChannel(ControlChannel):
    def __init__(self, comm: ThreadComm, queues: list[Queue[int]]) -> None:
        self._comm, self._queues = comm, queues

    def post(self, message: int) -> None:
        assert self._comm.rank == 0
        assert message >= 0
        for queue in self._queues[1:]:
            self._comm.ledger.count_sent("control", 8, 0)
            queue.put(message)

    def poll(self) -> int | None:
        assert self._comm.rank
        return None if self._queues[self._comm.rank].empty() else self.wait()

    def wait(self) -> int:
        assert self._comm.rank
        try:
            message = self._queues[self._comm.rank].get(timeout=DEADLINE_S)
        except Empty:
            raise TimeoutError(f"a control message for rank {self._comm.rank}") from None
        self._comm.ledger.count_received("control", 8)
        return message

    def flush(self) -> None:
        for _ in range(int(DEADLINE_S * 1000)):
            if all(queue.empty() for queue in self._queues):
                return
            threading.Event().wait(0.001)
        raise TimeoutError("control messages that are not received")

    def close(self) -> None:
        pass


class ReorderingThreadComm(ThreadComm):
    """As with gloo, background sums need not be in order with other operations."""

    allows_reordering = True


class _PendingSum(Work):
    def __init__(self, hub: Hub, number: int, values: Tensor, name: str) -> None:
        self._hub, self._number, self._values, self._name = hub, number, values, name
        self._total: Tensor | None = None

    def wait(self) -> Tensor:
        if self._total is None:
            parts = self._hub.sums[self._number]
            with self._hub.changed:
                self._hub.wait_for(lambda: len(parts) == self._hub.num_ranks, self._name)
            assert len({kind for kind, _ in parts.values()}) == 1, "ranks are in different sums"
            in_order = [part for _, (_, part) in sorted(parts.items())]  # bit-identical on all ranks
            self._total = self._values.copy_(torch.stack(in_order).sum(0))
        return self._total


def _is_longer(messages: list[Any], number: int) -> bool:
    return len(messages) > number


def as_threads(
    work: Callable[[Comm], Result], num_ranks: int, make: Callable[[Hub, int], ThreadComm] = ThreadComm
) -> list[Result]:
    """Run ``work`` on every rank, each with a comm from ``make``; return the results, or raise the first error."""
    hub = Hub(num_ranks)
    results: list[Any] = [None] * num_ranks
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            # A GPU has one thread for all backward passes, which would deadlock between ranks.
            with torch.autograd.set_multithreading_enabled(False):
                results[rank] = work(make(hub, rank))
        except BaseException as error:
            errors.append(error)
            hub.abort()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S * 3)
    if errors:
        raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    return results


def threads_for_processes(
    work: Callable[[Comm, Callable[[Any], None]], Result],
    num_ranks: int,
    *,
    on_event: Callable[[int, Any], None] | None = None,
    **_: Any,
) -> list[Result]:
    """Replace ``run_ranks``."""
    send_event = on_event or (lambda rank, event: None)
    return as_threads(lambda comm: work(comm, partial(send_event, comm.rank)), num_ranks)


def begin_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ranks that are threads begin with the same weights, although they share one random stream."""
    from strobe.engine.checkpoint.store import TrainState
    from strobe.engine.job import Job

    make, lock = Job.make_model, threading.RLock()

    def made(job: Job) -> tuple[nn.Module, nn.Module]:
        with lock:
            return make(job)

    monkeypatch.setattr(Job, "make_model", made)
    all_have: dict[int, threading.Barrier] = {}
    for module in ("train", "online.trainer"):
        where = import_module(f"strobe.engine.{module}")  # a function has the same name
        if where.initial_state.__name__ == "everywhere":  # patched already
            continue

        def everywhere(job: Job, initial_state: Callable[[Job], TrainState] = where.initial_state) -> TrainState:
            with lock:  # other ranks seed their generators once they have theirs
                state = initial_state(job)
            if threading.current_thread() is not threading.main_thread():
                with lock:
                    barrier = all_have.setdefault(job.comm.num_ranks, threading.Barrier(job.comm.num_ranks))
                barrier.wait(DEADLINE_S)  # before one of them draws other random numbers
            return state

        monkeypatch.setattr(where, "initial_state", everywhere)
