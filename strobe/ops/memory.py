"""Memory for large results, handed out again when the last of them is gone.

The C library gives large blocks back to the system as soon as they are free, and the system clears every page of the
next one: an epoch that makes ten results of 128 MB would spend a third of its time waiting for memory it had a moment
ago. Blocks here are kept for the next result of about their size, and let go of when nobody has wanted them for a
while; epochs repeat themselves, so few are ever idle. Where results grow from step to step, smaller blocks make room
for larger ones: all blocks together take little more than those that were ever in use at one time.
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

SMALLEST = 4 << 20
"""Bytes from which on results come from here. Smaller ones the C library keeps by itself."""

IDLE = 64
"""A block that has not been wanted while so many others were is given back."""

_WASTE = 2.0  # a block serves results down to its size divided by this
_SPARE = 1.25  # of the most bytes ever in use: as many may be in use or idle
_LINE = 64  # bytes of a cache line: blocks begin with one, or every vector a kernel reads or writes would touch two

Block = npt.NDArray[np.uint8]


class Pool:
    """Blocks that are free, with the request after which each became so."""

    def __init__(self) -> None:
        # A block can come back while another is being taken, in the same thread: freeing runs between any two steps.
        self._lock = threading.RLock()
        self._free: list[tuple[int, Block]] = []
        self._requests = 0
        self._used = self._most = 0  # bytes
        self.paused = False
        os.register_at_fork(after_in_child=self._unlock)

    @property
    def idle_bytes(self) -> int:
        return sum(block.nbytes for _, block in self._free)

    def take(self, num_bytes: int) -> Block:
        """The smallest free block that is large enough and not much too large, or a new one."""
        with self._lock:
            self._requests += 1
            self._free = [(since, block) for since, block in self._free if self._requests - since < IDLE]
            large = [at for at, (_, block) in enumerate(self._free) if num_bytes <= block.nbytes <= num_bytes * _WASTE]
            if large:
                block = self._free.pop(min(large, key=lambda at: self._free[at][1].nbytes))[1]
                self._uses(block.nbytes)
                return block
            self._uses(num_bytes)
            self._make_room()
        fresh: Block = np.empty(num_bytes + _LINE, np.uint8)  # numpy asks the system for huge pages
        start = -fresh.ctypes.data % _LINE
        return fresh[start : start + num_bytes]

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Large results come from the C library meanwhile: whoever counts what is made would not see blocks again."""
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before

    def give_back(self, block: Block) -> None:
        with self._lock:
            self._used -= block.nbytes
            self._free.append((self._requests, block))

    def _uses(self, num_bytes: int) -> None:
        self._used += num_bytes
        self._most = max(self._most, self._used)

    def _make_room(self) -> None:
        """Lets go of idle blocks, those first that have been so longest, before a new one is made."""
        idle = self.idle_bytes
        while self._free and self._used + idle > _SPARE * self._most:
            idle -= self._free.pop(0)[1].nbytes

    def _unlock(self) -> None:
        self._lock = threading.RLock()

    def clear(self) -> None:
        """Lets go of all free blocks."""
        with self._lock:
            self._free = []


POOL = Pool()


def empty(like: Tensor, *shape: int) -> Tensor:
    """Memory for a result of the kind and on the device of ``like``, not initialised."""
    num_bytes = math.prod(shape) * like.element_size()
    if num_bytes < SMALLEST or POOL.paused or like.device.type != "cpu" or like.dtype not in _KINDS:
        return like.new_empty(*shape)
    block = POOL.take(num_bytes)
    # The tensor holds on to this array, and the array's end is the tensor's: then the block is free again.
    rows: npt.NDArray[Any] = block[:num_bytes].view(_KINDS[like.dtype]).reshape(shape)
    weakref.finalize(rows, POOL.give_back, block).atexit = False
    return torch.from_numpy(rows)


_KINDS: dict[torch.dtype, type[np.floating[Any]]] = {torch.float32: np.float32, torch.float64: np.float64}
