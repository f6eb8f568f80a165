"""Pool of reusable buffers for large results.

The C library returns large freed blocks to the system, which clears every page of the next one: an epoch with ten
results of 128 MB would spend a third of its time on page faults. Freed blocks are kept for results of similar size and
evicted when unused for a while, or when larger blocks need the room: the pool takes little more than its peak use.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

MIN_BYTES = 4 << 20
"""Smallest result served by the pool. The C library reuses smaller blocks itself."""

MAX_IDLE_REQUESTS = 64
"""A free block is evicted after this many requests that did not use it."""

_WASTE = 2.0  # a block serves results down to its size / _WASTE
_SPARE = 1.25  # used and free bytes together, relative to the peak of used bytes
_LINE = 64  # bytes of a cache line, to which blocks are aligned

Block = npt.NDArray[np.uint8]


class BufferPool:
    """Free blocks, with the request after which each was released. Thread-safe."""

    def __init__(self) -> None:
        # Reentrant: a finalizer can release a block in the thread that is acquiring another.
        self._lock = threading.RLock()
        self._free: list[tuple[int, Block]] = []
        self._requests = 0
        self._used = self._most = 0  # bytes
        self._pauses = 0
        os.register_at_fork(after_in_child=self._reset_lock)

    @property
    def idle_bytes(self) -> int:
        return sum(block.nbytes for _, block in self._free)

    def acquire(self, num_bytes: int) -> Block:
        """Take the smallest free block of sufficient and similar size, or allocate a new one."""
        with self._lock:
            self._requests += 1
            self._free = [(since, block) for since, block in self._free if self._requests - since < MAX_IDLE_REQUESTS]
            large = [at for at, (_, block) in enumerate(self._free) if num_bytes <= block.nbytes <= num_bytes * _WASTE]
            if large:
                block = self._free.pop(min(large, key=lambda at: self._free[at][1].nbytes))[1]
                self._count_use(block.nbytes)
                return block
            self._count_use(num_bytes)
            self._evict()
        fresh: Block = np.empty(num_bytes + _LINE, np.uint8)  # numpy requests huge pages
        start = -fresh.ctypes.data % _LINE
        return fresh[start : start + num_bytes]

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Bypass the pool, so that allocation tracking sees every result."""
        with self._lock:
            self._pauses += 1
        try:
            yield
        finally:
            with self._lock:
                self._pauses -= 1

    @property
    def paused(self) -> bool:
        """Whether any thread has paused the pool."""
        return self._pauses > 0

    def release(self, block: Block) -> None:
        with self._lock:
            self._used -= block.nbytes
            self._free.append((self._requests, block))

    def _count_use(self, num_bytes: int) -> None:
        self._used += num_bytes
        self._most = max(self._most, self._used)

    def _evict(self) -> None:
        """Drop the blocks that were released first until a new block fits the limit."""
        idle = self.idle_bytes
        while self._free and self._used + idle > _SPARE * self._most:
            idle -= self._free.pop(0)[1].nbytes

    def _reset_lock(self) -> None:
        self._lock = threading.RLock()

    def clear(self) -> None:
        """Drop all free blocks."""
        with self._lock:
            self._free = []


POOL = BufferPool()


def empty(like: Tensor, *shape: int) -> Tensor:
    """Allocate an uninitialized result with the dtype and device of ``like``, from the pool if it is large."""
    num_bytes = math.prod(shape) * like.element_size()
    if num_bytes < MIN_BYTES or POOL.paused or like.device.type != "cpu" or like.dtype not in _NUMPY_DTYPES:
        return like.new_empty(*shape)
    block = POOL.acquire(num_bytes)
    # The tensor owns this array; the block is released when the array is collected.
    rows: npt.NDArray[Any] = block[:num_bytes].view(_NUMPY_DTYPES[like.dtype]).reshape(shape)
    weakref.finalize(rows, POOL.release, block).atexit = False
    return torch.from_numpy(rows)


_NUMPY_DTYPES: dict[torch.dtype, type[np.floating[Any]]] = {torch.float32: np.float32, torch.float64: np.float64}
