"""Ranks as threads of one process: the same calls as between processes, a thousand times faster to start."""

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

from strobe.comm import Arrival, Comm, Ledger, Line

Result = TypeVar("Result")
DEADLINE_S = 20.0


class Box:
    """Messages of one rank to another. They answer in the order in which they were asked for, not waited for."""

    def __init__(self) -> None:
        self._come: Queue[Tensor] = Queue()
        self._here: dict[int, Tensor] = {}
        self._asked = self._taken = 0

    def put(self, rows: Tensor) -> None:
        self._come.put(rows)

    def ask(self) -> int:
        self._asked += 1
        return self._asked - 1

    def get(self, number: int) -> Tensor:
        while number not in self._here:
            self._here[self._taken] = self._come.get(timeout=DEADLINE_S)
            self._taken += 1
        return self._here.pop(number)


class Hub:
    """What the threads share."""

    def __init__(self, num_ranks: int) -> None:
        self.num_ranks = num_ranks
        self.boxes: dict[tuple[int, int, int], Box] = defaultdict(Box)
        self.gate = threading.Barrier(num_ranks, timeout=DEADLINE_S)
        self.table: list[Any] = [None] * num_ranks
        self.lines: dict[tuple[int, int], Queue[int]] = defaultdict(Queue)
        self.later: dict[int, dict[int, Tensor]] = defaultdict(dict)
        self.lock = threading.Lock()


class ThreadComm(Comm):
    """One of several ranks in one process."""

    def __init__(self, hub: Hub, rank: int) -> None:
        self.rank, self.num_ranks, self.ledger, self._hub = rank, hub.num_ranks, Ledger(), hub
        self._sums = self._lines = 0

    def send(self, to: int, rows: Tensor, *, kind: str, tag: int = 0) -> None:
        assert len(rows), "empty messages are not sent"
        assert to != self.rank
        self.ledger.count_sent(kind, rows.numel() * rows.element_size(), len(rows))
        with self._hub.lock:
            box = self._hub.boxes[self.rank, to, tag]
        box.put(rows.detach().clone())

    def receive(self, source: int, like: Tensor, num_rows: int, *, kind: str, tag: int = 0) -> Arrival:
        assert num_rows, "empty messages are not expected"
        self.ledger.count_received(kind, num_rows * like[:1].numel() if len(like) else num_rows)
        with self._hub.lock:
            box = self._hub.boxes[source, self.rank, tag]
        return _Boxed(box, (num_rows, *like.shape[1:]), f"{kind} from {source} to {self.rank}")

    def settle(self) -> None:
        pass

    def sum(self, values: Tensor, *, kind: str) -> Tensor:
        everyone: list[Tensor] = self.gather(values.detach(), kind=kind)
        assert all(each.shape == values.shape and each.dtype == values.dtype for each in everyone), kind
        total = everyone[0].clone()
        for each in everyone[1:]:
            total += each
        return total

    def sum_later(self, values: Tensor, *, kind: str) -> Arrival:
        self._sums += 1
        number = self._sums
        with self._hub.lock:
            self._hub.later[number][self.rank] = values.detach().clone()
        return _Later(self._hub, number, values)

    def largest(self, values: list[float], *, kind: str) -> list[float]:
        return [max(each) for each in zip(*self.gather(values, kind=kind), strict=True)]

    def gather(self, value: Any, *, kind: str) -> list[Any]:
        self._hub.gate.wait()
        self._hub.table[self.rank] = (kind, value)
        self._hub.gate.wait()
        found = deepcopy(self._hub.table)  # between processes nobody gets what another goes on with
        self._hub.gate.wait()
        assert {each for each, _ in found} == {kind}, "ranks that wait for all others do not wait for the same"
        return [each for _, each in found]

    def collect(self, value: Any, *, kind: str) -> list[Any]:
        everyone = self.gather(value, kind=kind)
        return everyone if self.rank == 0 else []

    def share(self, value: Any, *, kind: str) -> Any:
        return self.gather(value, kind=kind)[0]

    @contextmanager
    def rank_0_alone(self, phase: str) -> Iterator[None]:
        with self.ledger.phase(phase):
            yield
            self._hub.gate.wait()

    def line(self) -> Line:
        self._lines += 1
        with self._hub.lock:
            ears = [self._hub.lines[self._lines, rank] for rank in range(self.num_ranks)]
        return _ThreadLine(self, ears)

    def close(self) -> None:
        pass


class _ThreadLine(Line):
    def __init__(self, comm: ThreadComm, ears: list[Queue[int]]) -> None:
        self._comm, self._ears = comm, ears

    def call(self, word: int) -> None:
        assert self._comm.rank == 0
        assert word >= 0
        for ear in self._ears[1:]:
            self._comm.ledger.count_sent("calls", 8, 0)
            ear.put(word)

    def heard(self) -> int | None:
        assert self._comm.rank
        return None if self._ears[self._comm.rank].empty() else self.next()

    def next(self) -> int:
        assert self._comm.rank
        try:
            word = self._ears[self._comm.rank].get(timeout=DEADLINE_S)
        except Empty:
            raise TimeoutError(f"a word for rank {self._comm.rank}") from None
        self._comm.ledger.count_received("calls", 8)
        return word

    def settle(self) -> None:
        for _ in range(int(DEADLINE_S * 1000)):
            if all(ear.empty() for ear in self._ears):
                return
            threading.Event().wait(0.001)
        raise TimeoutError("words that nobody hears")

    def close(self) -> None:
        pass


class _Boxed(Arrival):
    def __init__(self, box: Box, shape: tuple[int, ...], what: str) -> None:
        self._box, self._shape, self._what = box, shape, what
        self._number = box.ask()

    def wait(self) -> Tensor:
        try:
            rows = self._box.get(self._number)
        except Empty:
            raise TimeoutError(self._what) from None
        assert rows.shape == self._shape, (self._what, rows.shape, self._shape)
        return rows


class _Later(Arrival):
    def __init__(self, hub: Hub, number: int, values: Tensor) -> None:
        self._hub, self._number, self._values = hub, number, values

    def wait(self) -> Tensor:
        deadline = threading.Event()
        for _ in range(int(DEADLINE_S * 1000)):
            if len(self._hub.later[self._number]) == self._hub.num_ranks:
                parts = sorted(self._hub.later[self._number].items())  # in one order: the same bits every time
                total = torch.stack([part for _, part in parts]).sum(0)
                self._values.copy_(total)
                return self._values
            deadline.wait(0.001)
        raise TimeoutError("a sum in the background")


def as_threads(
    work: Callable[[Comm], Result], num_ranks: int, make: Callable[[Hub, int], ThreadComm] = ThreadComm
) -> list[Result]:
    """``work`` on every rank at once; what each gave, or the first error. ``make`` gives a rank its comm."""
    hub = Hub(num_ranks)
    results: list[Any] = [None] * num_ranks
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            # A GPU has one thread for all ways back, which would wait in one rank for what another sends in its own.
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
    """In the place of ``run_ranks``."""
    tell = on_event or (lambda rank, event: None)
    return as_threads(lambda comm: work(comm, partial(tell, comm.rank)), num_ranks)


def begin_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has ranks that are threads begin with the same weights: random numbers are one stream for all of them."""
    from strobe.engine.checkpoint import State
    from strobe.engine.job import Job

    make, lock = Job.make, threading.RLock()

    def made(job: Job) -> tuple[nn.Module, nn.Module]:
        with lock:
            return make(job)

    monkeypatch.setattr(Job, "make", made)
    all_have: dict[int, threading.Barrier] = {}
    for module in ("train", "online"):
        where = import_module(f"strobe.engine.{module}")  # not by its name: a function is called so, too
        if where.fresh.__name__ == "everywhere":  # somebody has seen to it already
            continue

        def everywhere(job: Job, fresh: Callable[[Job], State] = where.fresh) -> State:
            with lock:  # other ranks begin random numbers anew when they have theirs
                state = fresh(job)
            if threading.current_thread() is not threading.main_thread():
                with lock:
                    barrier = all_have.setdefault(job.comm.num_ranks, threading.Barrier(job.comm.num_ranks))
                barrier.wait(DEADLINE_S)  # before one of them goes on and draws something else
            return state

        monkeypatch.setattr(where, "fresh", everywhere)
