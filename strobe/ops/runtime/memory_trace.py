"""Peak and retained memory of the tensors that a computation allocates."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from strobe.ops.runtime.buffers import POOL


class MemoryUse(NamedTuple):
    """Peak bytes during a computation, and bytes still allocated after it."""

    peak_bytes: int
    retained_bytes: int


def measure_memory(work: Callable[[], Any], device: torch.device) -> MemoryUse:
    """Measure the memory of tensors that ``work`` allocates, on a GPU by its caching allocator."""
    if device.type == "cuda":
        gc.collect()  # garbage must not be attributed to work, nor freed while it runs
        torch.cuda.synchronize(device)
        before = int(torch.cuda.memory_allocated(device))
        torch.cuda.reset_peak_memory_stats(device)
        work()
        peak = torch.cuda.max_memory_allocated(device)
        gc.collect()
        retained = torch.cuda.memory_allocated(device)
        return MemoryUse(int(peak) - before, int(retained) - before)
    tracker = AllocationTracker()
    with POOL.pause(), tracker:
        work()
    return MemoryUse(tracker.peak_bytes, tracker.current_bytes)


def measure_peak_bytes(work: Callable[[], Any], device: torch.device) -> int:
    """Measure the peak bytes of tensors that ``work`` allocates."""
    return measure_memory(work, device).peak_bytes


class AllocationTracker(TorchDispatchMode):
    """Counts storages as operations allocate and free them. Pause ``POOL`` meanwhile: its blocks are not seen."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak_bytes = self.current_bytes = 0
        self._known: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would load its compiler to keep it from tracing this class: seconds, for what is never compiled."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = {_storage_key(each) for each in _strided_tensors(args, kwargs)}
        out = func(*args, **(kwargs or {}))
        for each in _strided_tensors(out):
            if _storage_key(each) not in inputs | self._known:
                self._record_allocation(each.untyped_storage())
        return out

    def _record_allocation(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        self._known.add(key)
        self.current_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.current_bytes)
        weakref.finalize(storage, self._record_free, key, size)

    def _record_free(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.current_bytes -= size


def _strided_tensors(*nests: Any) -> Iterator[Tensor]:
    """Tensors with a storage of their own, which sparse tensors have not. Arguments and results of operations are
    tensors, or lists, tuples and dictionaries of them."""
    for nest in nests:
        if isinstance(nest, Tensor):
            if nest.layout == torch.strided:
                yield nest
        elif isinstance(nest, list | tuple):
            yield from _strided_tensors(*nest)
        elif isinstance(nest, dict):
            yield from _strided_tensors(*nest.values())


def _storage_key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
