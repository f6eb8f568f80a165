"""A cache of sampled batches that a background thread fills."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Generic, TypeVar

import numpy as np

BatchT = TypeVar("BatchT")

_PREFETCH = 2
"""New batches made ahead where not all fit into memory."""


class Reservoir(Generic[BatchT]):
    """A cache of batches of several kinds, which a thread fills ahead of training.

    A step reuses a batch with probability p = cached / capacity, and otherwise takes the next new one, which evicts the
    oldest if memory is full. The choice depends on the seed alone, not on the progress of the thread; a step that needs
    a batch before the thread has made it makes the batch itself.

    Args:
        make: makes the batch of a kind with a number; deterministic and thread-safe. It must release the GIL.
        capacities: batches of each kind, 1 or more; no further ones are made.
        seed: of the choice of batches.
        limit: bytes of cached batches of all kinds; the first batch of a kind determines how many fit. If not all fit,
            up to two prefetched batches of a kind come on top.
        num_bytes: bytes of a batch.
    """

    def __init__(
        self,
        make: Callable[[int, int], BatchT],
        capacities: Sequence[int],
        *,
        seed: Sequence[int],
        limit: float = float("inf"),
        num_bytes: Callable[[BatchT], int] = lambda _: 0,
    ) -> None:
        self._make, self._num_bytes = make, num_bytes
        self._capacity = list(capacities)
        self._limit = limit / max(len(capacities), 1)
        self._cache_sizes: list[int | None] = [None for _ in capacities]  # None: not known yet
        self._cache: list[dict[int, BatchT]] = [{} for _ in capacities]
        self._used = [0 for _ in capacities]  # distinct batches trained on
        self._ahead = [0 for _ in capacities]  # all needed batches with lower numbers exist or are being made
        self._under_way: set[tuple[int, int]] = set()
        self._random = np.random.default_rng(list(seed))
        self._changed = threading.Condition()
        self._closed = False
        self._error: BaseException | None = None
        self._overlapped_s = 0.0
        self._thread: threading.Thread | None = None

    def warm_up(self, count: int = 1) -> None:
        """Make the first ``count`` batches of each kind, as far as they fit."""
        for number in range(count):
            for kind in range(len(self._cache)):
                if number < max(self._cache_sizes[kind] or 0, 1):
                    self._get(kind, number)

    def start(self) -> None:
        """Start the thread that makes batches."""
        self._thread = threading.Thread(target=self._generate, name="batches", daemon=True)
        self._thread.start()

    def take(self, kind: int) -> tuple[BatchT, float]:
        """Return a batch of a kind for the next step, and the seconds it took to make or to wait for."""
        with self._changed:
            self._raise()
            used = self._used[kind]
            ready = used - self._oldest(kind)
            again = self._random.random() < ready / self._capacity[kind]
            number = used - 1 - int(self._random.integers(ready)) if again else used
            self._used[kind] += not again
        began = perf_counter()
        batch = self._get(kind, number)
        took = perf_counter() - began
        with self._changed:
            self._cache[kind].pop(self._oldest(kind) - 1, None)
            self._changed.notify_all()
        return batch, took

    def pop_overlapped_s(self) -> float:
        """Return and reset the seconds of background work that training did not wait for."""
        with self._changed:
            took, self._overlapped_s = self._overlapped_s, 0.0
        return took

    def state_dict(self) -> dict[str, Any]:
        """The state that determines the next batches; cached batches are not saved but made again."""
        with self._changed:
            return {
                "used": list(self._used),
                "cache_sizes": list(self._cache_sizes),
                "random": self._random.bit_generator.state,
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state, before ``start``."""
        assert self._thread is None
        self._used = list(state["used"])
        self._cache_sizes = [
            own if saved is None else saved for own, saved in zip(self._cache_sizes, state["cache_sizes"], strict=True)
        ]
        self._random.bit_generator.state = state["random"]
        for kind, cached in enumerate(self._cache):
            self._cache[kind] = {number: batch for number, batch in cached.items() if number >= self._oldest(kind)}

    def close(self) -> None:
        """Stop the thread after the batch that it is making."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _oldest(self, kind: int) -> int:
        """The oldest batch that may be reused; the next new one, if none may."""
        return max(0, self._used[kind] - (self._cache_sizes[kind] or 0))

    def _get(self, kind: int, number: int) -> BatchT:
        """Return a cached batch, wait for one that another thread is making, or make it."""
        with self._changed:
            if (kind, number) in self._under_way:
                self._wait(kind, number)
            self._raise()
            if number in self._cache[kind]:
                return self._cache[kind][number]
            self._under_way.add((kind, number))
        return self._build(kind, number)

    def _wait(self, kind: int, number: int) -> None:
        """Wait for a batch; the waiting time does not count as overlapped."""
        began = perf_counter()
        while (kind, number) in self._under_way and self._error is None:
            self._changed.wait()
        self._overlapped_s = max(0.0, self._overlapped_s - (perf_counter() - began))

    def _build(self, kind: int, number: int, *, in_background: bool = False) -> BatchT:
        """Make a batch that no other thread is making, and cache it."""
        began = perf_counter()
        try:
            batch = self._make(kind, number)
            size = self._cache_sizes[kind]
            if size is None:
                size = int(min(self._capacity[kind], self._limit / max(self._num_bytes(batch), 1)))
        except BaseException as error:
            with self._changed:
                self._error = self._error or error
                self._under_way.discard((kind, number))
                self._changed.notify_all()
            raise
        with self._changed:
            self._cache_sizes[kind] = size
            self._under_way.discard((kind, number))
            if number >= min(self._oldest(kind), self._used[kind] - 1):  # also where another thread waits for it
                self._cache[kind][number] = batch
            self._overlapped_s += perf_counter() - began if in_background else 0.0
            self._changed.notify_all()
        return batch

    def _generate(self) -> None:
        while True:
            with self._changed:
                while (next_one := self._next()) is None and not self._closed and self._error is None:
                    self._changed.wait()
                if next_one is None or self._closed or self._error is not None:
                    return
                self._under_way.add(next_one)
            try:
                self._build(*next_one, in_background=True)
            except BaseException:  # the next take() raises it
                return

    def _next(self) -> tuple[int, int] | None:
        """The next batch to make: of the kind that is least ahead of training; None if all are made."""
        waiting = []
        for kind, cached in enumerate(self._cache):
            number, enough = max(self._ahead[kind], self._oldest(kind)), self._prefetch_limit(kind)
            while number < enough and (number in cached or (kind, number) in self._under_way):
                number += 1
            self._ahead[kind] = number
            if number < enough:
                waiting.append((number - self._used[kind], kind, number))
        return min(waiting)[1:] if waiting else None

    def _prefetch_limit(self, kind: int) -> int:
        """The number of the first batch that is not made yet."""
        size, capacity = self._cache_sizes[kind], self._capacity[kind]
        if size is None:
            return 1  # the first batch determines the size
        return capacity if size == capacity else self._used[kind] + _PREFETCH

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
