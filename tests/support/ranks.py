"""Ranks as threads of one process: the calls of ``Comm``, a thousand times faster to start than processes."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from importlib import import_module
from queue import Empty, Queue
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

from strobe.comm import Comm, ControlChannel, Ledger, Work

Result = TypeVar("Result")
DEADLINE_S = 20.0


class Box:
    """Messages of one rank to another, matched with receives in the order in which these were posted."""

    def __init__(self) -> None:
        self._arriving: Queue[Tensor] = Queue()
        self._arrived: dict[int, Tensor] = {}
        self._posted = self._matched = 0

    def put(self, rows: Tensor) -> None:
        self._arriving.put(rows)

    def post_receive(self) -> int:
        self._posted += 1
        return self._posted - 1

    def get(self, number: int) -> Tensor:
        while number not in self._arrived:
            self._arrived[self._matched] = self._arriving.get(timeout=DEADLINE_S)
            self._matched += 1
        return self._arrived.pop(number)


class Hub:
    """State that the threads share."""

    def __init__(self, num_ranks: int) -> None:
        self.num_ranks = num_ranks
        self.boxes: dict[tuple[int, int, int], Box] = defaultdict(Box)
        self.gate = threading.Barrier(num_ranks, timeout=DEADLINE_S)
        self.table: list[Any] = [None] * num_ranks
        self.channels: dict[tuple[int, int], Queue[int]] = defaultdict(Queue)
        self.pending_sums: dict[int, dict[int, Tensor]] = defaultdict(dict)
        self.lock = threading.Lock()


class ThreadComm(Comm):
    """Communication of one of several ranks in one process."""

    def __init__(self, hub: Hub, rank: int) -> None:
        self.rank, self.num_ranks, self.ledger, self._hub = rank, hub.num_ranks, Ledger(), hub
        self._sums = self._channels = 0

    def send(self, dst: int, rows: Tensor, *, kind: str, tag: int = 0) -> None:
        assert len(rows), "empty messages are not sent"
        assert dst != self.rank
        self.ledger.count_sent(kind, rows.numel() * rows.element_size(), len(rows))
        with self._hub.lock:
            box = self._hub.boxes[self.rank, dst, tag]
        box.put(rows.detach().clone())

    def receive(self, src: int, like: Tensor, num_rows: int, *, kind: str, tag: int = 0) -> Work:
        assert num_rows, "empty messages are not expected"
        self.ledger.count_received(kind, num_rows * like[:1].numel() if len(like) else num_rows)
        with self._hub.lock:
            box = self._hub.boxes[src, self.rank, tag]
        return _PendingReceive(box, (num_rows, *like.shape[1:]), f"{kind} from {src} to {self.rank}")

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
        self._sums += 1
        number = self._sums
        with self._hub.lock:
            self._hub.pending_sums[number][self.rank] = values.detach().clone()
        return _PendingSum(self._hub, number, values)

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
            queues = [self._hub.channels[self._channels, rank] for rank in range(self.num_ranks)]
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


class _PendingReceive(Work):
    def __init__(self, box: Box, shape: tuple[int, ...], name: str) -> None:
        self._box, self._shape, self._name = box, shape, name
        self._number = box.post_receive()

    def wait(self) -> Tensor:
        try:
            rows = self._box.get(self._number)
        except Empty:
            raise TimeoutError(self._name) from None
        assert rows.shape == self._shape, (self._name, rows.shape, self._shape)
        return rows


class _PendingSum(Work):
    def __init__(self, hub: Hub, number: int, values: Tensor) -> None:
        self._hub, self._number, self._values = hub, number, values

    def wait(self) -> Tensor:
        deadline = threading.Event()
        for _ in range(int(DEADLINE_S * 1000)):
            if len(self._hub.pending_sums[self._number]) == self._hub.num_ranks:
                parts = sorted(self._hub.pending_sums[self._number].items())  # in one order: bit-identical
                total = torch.stack([part for _, part in parts]).sum(0)
                self._values.copy_(total)
                return self._values
            deadline.wait(0.001)
        raise TimeoutError("a background all-reduce")


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
            hub.gate.abort()

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
