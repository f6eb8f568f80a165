"""Parallel loops: every part runs on one core.

Parts that stay in the cache of one core beat operations that each use all cores: products of tiles of 2,048 rows and 32
columns ran at 217 GFLOP/s on two cores with one tile per core, at 186 with both cores on one tile.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

import torch

PartFunction = Callable[[int], None]
T = TypeVar("T")

_RANGES = 8
"""Ranges per thread, for load balance."""

_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}


def run_parts(work: PartFunction, count: int) -> None:
    """Call ``work(0) … work(count - 1)`` on torch's number of threads, without autograd.

    Parts run on arbitrary threads, so each must write its own output: then results do not depend on the number of
    threads. The first error is raised after all threads have stopped.
    """
    threads = torch.get_num_threads()
    workers = min(threads, count)
    if workers <= 1:
        with torch.no_grad():
            for part in range(count):
                work(part)
        return
    remaining = iter(range(count))
    torch.set_num_threads(1)
    try:
        futures: list[Future[None]] = [_pool(workers - 1).submit(_drain, work, remaining) for _ in range(workers - 1)]
        try:
            _drain(work, remaining)
        finally:
            errors = [future.exception() for future in futures]
    finally:
        torch.set_num_threads(threads)
    for error in errors:
        if error is not None:
            raise error


def map_in_order(make: Callable[[int], T], count: int) -> Iterator[T]:
    """Yield ``make(0) … make(count - 1)`` in order, computing one per thread at a time."""
    step = torch.get_num_threads()
    for first in range(0, count, step):
        results: dict[int, T] = {}

        def work(k: int, first: int = first, results: dict[int, T] = results) -> None:
            results[first + k] = make(first + k)

        run_parts(work, min(step, count - first))
        for k in range(first, first + len(results)):
            yield results.pop(k)


def run_ranges(work: Callable[[int, int], None], count: int, min_size: int = 1) -> None:
    """Call ``work(first, end)`` on ranges that cover ``range(count)``, of at least ``min_size`` each.

    The results must not depend on the ranges, whose number depends on the number of threads.
    """
    parts = max(1, min(_RANGES * torch.get_num_threads(), count // min_size)) if torch.get_num_threads() > 1 else 1
    cuts = [count * part // parts for part in range(parts + 1)]
    run_parts(lambda part: work(cuts[part], cuts[part + 1]), parts)


@lru_cache(1 << 12)
def even_cuts(first: int, end: int, parts: int) -> tuple[tuple[int, int], ...]:
    """Ranges of almost equal length that cover ``range(first, end)``."""
    ends = torch.linspace(first, end, parts + 1, dtype=torch.float64).long().tolist()
    return tuple(pairwise(ends))


def _drain(work: PartFunction, remaining: object) -> None:
    with torch.no_grad():
        while True:
            with _lock:
                part = next(remaining, None)  # type: ignore[call-overload]
            if part is None:
                return
            work(part)


def _pool(workers: int) -> ThreadPoolExecutor:
    if workers not in _pools:
        _pools[workers] = ThreadPoolExecutor(
            workers, thread_name_prefix="strobe-ops", initializer=torch.set_num_threads, initargs=(1,)
        )
    return _pools[workers]


def _reset_after_fork() -> None:
    """Forget the threads and the lock of the parent process."""
    global _lock
    _lock = threading.Lock()
    _pools.clear()


os.register_at_fork(after_in_child=_reset_after_fork)
