"""Batches that are made beside training and kept for later steps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Generic, TypeVar

import numpy as np

Kept = TypeVar("Kept")

_AHEAD = 2
"""New batches that wait for a step where memory is short: one more than is needed next."""


class Reservoir(Generic[Kept]):
    """Batches of several kinds. A thread makes them ahead of training, number after number.

    A step takes one that has been trained on before with probability p = (those that are kept) / (capacity), else the
    next new one; where memory is short the oldest then makes room. So p never exceeds 1, and what is taken depends on
    the seed and on nothing else: not on how far the thread has come. Where that has fallen behind, the step makes the
    batch itself.

    Args:
        make: the batch of a kind with a number; the same for the same arguments, whichever thread asks. It must let
            other threads run while it works.
        capacities: how many of each kind are enough, 1 or more: once they are there no new ones are made.
        limit: bytes of what is kept of all kinds together; how many fit is told by the first of a kind. Where not all
            do, one or two of a kind that wait for their step come on top.
        num_bytes: of a batch.
    """

    def __init__(
        self,
        make: Callable[[int, int], Kept],
        capacities: Sequence[int],
        *,
        seed: Sequence[int],
        limit: float = float("inf"),
        num_bytes: Callable[[Kept], int] = lambda _: 0,
    ) -> None:
        self._make, self._num_bytes = make, num_bytes
        self._capacity = list(capacities)
        self._limit = limit / max(len(capacities), 1)
        self._room: list[int | None] = [None for _ in capacities]  # how many of each kind are kept; None: nobody knows
        self._kept: list[dict[int, Kept]] = [{} for _ in capacities]
        self._used = [0 for _ in capacities]  # how many different ones have been trained on
        self._ahead = [0 for _ in capacities]  # all that are needed before this one are there or under way
        self._under_way: set[tuple[int, int]] = set()
        self._random = np.random.default_rng(list(seed))
        self._changed = threading.Condition()
        self._closed = False
        self._error: BaseException | None = None
        self._hidden_s = 0.0
        self._thread: threading.Thread | None = None

    def first(self, count: int = 1) -> None:
        """Makes the first batches of each kind, so many if they fit; the very first tells how many do."""
        for number in range(count):
            for kind in range(len(self._kept)):
                if number < max(self._room[kind] or 0, 1):
                    self._get(kind, number)

    def start(self) -> None:
        """Begins to make batches."""
        self._thread = threading.Thread(target=self._generate, name="batches", daemon=True)
        self._thread.start()

    def take(self, kind: int) -> tuple[Kept, float]:
        """A batch of a kind for the next step, and the seconds that this took to make or to wait for."""
        with self._changed:
            self._raise()
            used = self._used[kind]
            ready = used - self._oldest(kind)
            again = self._random.random() < ready / self._capacity[kind]
            number = used - 1 - int(self._random.integers(ready)) if again else used
            self._used[kind] += not again
        began = perf_counter()
        found = self._get(kind, number)
        took = perf_counter() - began
        with self._changed:
            self._kept[kind].pop(self._oldest(kind) - 1, None)
            self._changed.notify_all()
        return found, took

    def hidden(self) -> float:
        """Seconds that were spent on batches beside training since this was last asked, without those that training
        waited for."""
        with self._changed:
            took, self._hidden_s = self._hidden_s, 0.0
        return took

    def remembered(self) -> dict[str, Any]:
        """All that says which batches come next, as plain values; batches themselves are made anew."""
        with self._changed:
            return {"used": list(self._used), "room": list(self._room), "random": self._random.bit_generator.state}

    def recall(self, found: dict[str, Any]) -> None:
        """Goes on from what was remembered; it must not have started."""
        assert self._thread is None
        self._used = list(found["used"])
        self._room = [mine if room is None else room for mine, room in zip(self._room, found["room"], strict=True)]
        self._random.bit_generator.state = found["random"]
        for kind, kept in enumerate(self._kept):
            self._kept[kind] = {number: batch for number, batch in kept.items() if number >= self._oldest(kind)}

    def close(self) -> None:
        """Makes no more; waits for the one that is being made."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _oldest(self, kind: int) -> int:
        """The oldest batch that may be taken again; the next new one, if none may."""
        return max(0, self._used[kind] - (self._room[kind] or 0))

    def _get(self, kind: int, number: int) -> Kept:
        """A batch that is kept, that another thread is about to have made, or that is made here."""
        with self._changed:
            if (kind, number) in self._under_way:
                self._wait(kind, number)
            self._raise()
            if number in self._kept[kind]:
                return self._kept[kind][number]
            self._under_way.add((kind, number))
        return self._made(kind, number)

    def _wait(self, kind: int, number: int) -> None:
        """Until a batch is there; what training waited for was not hidden."""
        began = perf_counter()
        while (kind, number) in self._under_way and self._error is None:
            self._changed.wait()
        self._hidden_s = max(0.0, self._hidden_s - (perf_counter() - began))

    def _made(self, kind: int, number: int, *, beside: bool = False) -> Kept:
        """Makes a batch that nobody else is making, and keeps it."""
        began = perf_counter()
        try:
            made = self._make(kind, number)
            room = self._room[kind]
            if room is None:
                room = int(min(self._capacity[kind], self._limit / max(self._num_bytes(made), 1)))
        except BaseException as error:
            with self._changed:
                self._error = self._error or error
                self._under_way.discard((kind, number))
                self._changed.notify_all()
            raise
        with self._changed:
            self._room[kind] = room
            self._under_way.discard((kind, number))
            if number >= min(self._oldest(kind), self._used[kind] - 1):  # whoever waits for it finds it
                self._kept[kind][number] = made
            self._hidden_s += perf_counter() - began if beside else 0.0
            self._changed.notify_all()
        return made

    def _generate(self) -> None:
        while True:
            with self._changed:
                while (next_one := self._next()) is None and not self._closed and self._error is None:
                    self._changed.wait()
                if next_one is None or self._closed or self._error is not None:
                    return
                self._under_way.add(next_one)
            try:
                self._made(*next_one, beside=True)
            except BaseException:  # whoever takes the next batch learns of it
                return

    def _next(self) -> tuple[int, int] | None:
        """The next batch to make: of the kind that is least ahead of training."""
        waiting = []
        for kind, kept in enumerate(self._kept):
            number, enough = max(self._ahead[kind], self._oldest(kind)), self._enough(kind)
            while number < enough and (number in kept or (kind, number) in self._under_way):
                number += 1
            self._ahead[kind] = number
            if number < enough:
                waiting.append((number - self._used[kind], kind, number))
        return min(waiting)[1:] if waiting else None

    def _enough(self, kind: int) -> int:
        """Batches of this number and later ones are not made yet."""
        room, capacity = self._room[kind], self._capacity[kind]
        if room is None:
            return 1  # that one tells how many fit
        return capacity if room == capacity else self._used[kind] + _AHEAD

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
