"""How much memory a computation takes: the most that its tensors had at any one time, and what is left of them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from strobe.ops.memory import POOL


class Bytes(NamedTuple):
    """What tensors that some work has made had at most, and what is left of them after it."""

    most: int
    left: int


def bytes_of(work: Callable[[], Any], device: torch.device) -> Bytes:
    """The bytes of tensors made by ``work``. On a GPU its allocator knows."""
    if device.type == "cuda":
        gc.collect()  # what is only waiting to be found would be taken for work's, or go while it runs
        torch.cuda.synchronize(device)
        before = int(torch.cuda.memory_allocated(device))
        torch.cuda.reset_peak_memory_stats(device)
        work()
        most = torch.cuda.max_memory_allocated(device)
        gc.collect()
        left = torch.cuda.memory_allocated(device)
        return Bytes(int(most) - before, int(left) - before)
    counting = Counting()
    with POOL.pause(), counting:
        work()
    return Bytes(counting.most, counting.now)


def peak_bytes_of(work: Callable[[], Any], device: torch.device) -> int:
    """The most bytes that tensors made by ``work`` had at a time."""
    return bytes_of(work, device).most


class Counting(TorchDispatchMode):
    """Adds up storages as operations make them, and takes them off as they go. Blocks of the pool it does not see: have
    that pause."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most = self.now = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {_key(each) for each in _dense(args, kwargs)}
        out = func(*args, **(kwargs or {}))
        for each in _dense(out):
            if _key(each) not in given | self._known:
                self._made(each.untyped_storage())
        return out

    def _made(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        self._known.add(key)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def _dense(*nests: Any) -> Iterator[Tensor]:
    """Tensors of nests that have a storage; those that are sparse have none of their own."""
    leaves = (leaf for leaf in pytree.tree_leaves(nests) if isinstance(leaf, Tensor))
    return (leaf for leaf in leaves if leaf.layout == torch.strided)


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
