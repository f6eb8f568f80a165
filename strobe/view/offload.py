"""Offload windows to host memory between passes, and prefetch the next one while the current one is computed.

The tensors of a window (features, aggregates, matrices, kernel plans, examples) are built once and never change. Their
device memory is freed between two passes and refilled from a host copy; tensor objects and their views stay valid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from mmap import mmap
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakValueDictionary, finalize

import numpy as np
import torch
from torch import Tensor, nn

from strobe.comm import Comm
from strobe.errors import OptionError
from strobe.format import file_size
from strobe.graph import DynamicGraph

if TYPE_CHECKING:
    from strobe.view.data.window import WindowData

_NOT_OFFLOADED = (DynamicGraph, Comm, nn.Module, np.ndarray)
"""Objects that windows share, or that are not on a device."""

_MIN_PINNED_BYTES = 1 << 16
"""Minimum size of pinned copies: pinning smaller ones costs more than it saves."""


@dataclass(eq=False)
class _DeviceTensors:
    """Device storages of a window by id, each with its host copy.

    ``related`` are objects used with the window that it does not reference; ``copy_done`` is the event after the last
    copy to the device.
    """

    storages: dict[int, tuple[torch.UntypedStorage, _HostCopy]] = field(default_factory=dict)
    related: list[object] = field(default_factory=list)
    copy_done: torch.cuda.Event | None = None


class OffloadedWindows:
    """Keeps two windows on the device: the current one, and the one that followed it the last time.

    The next window is predicted from the two before it and from whether gradients are enabled, which tells training,
    backward and evaluation apart.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = torch.empty(0, device=device).device  # with an index, as tensors have it
        self._copy_stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._tensors: WeakKeyDictionary[WindowData, _DeviceTensors] = WeakKeyDictionary()
        self._resident: list[WindowData] = []
        self._successor: WeakValueDictionary[tuple[bool, int, int], WindowData] = WeakValueDictionary()
        self._last_two: tuple[int, int] = (0, 0)

    @property
    def device_bytes(self) -> int:
        """Device bytes of windows that have been offloaded before."""
        return sum(storage.nbytes() for tensors in self._tensors.values() for storage, _ in tensors.storages.values())

    @property
    def host_bytes(self) -> int:
        """Bytes of all host copies."""
        return sum(len(copy.bytes) for tensors in self._tensors.values() for _, copy in tensors.storages.values())

    def make_resident(self, data: WindowData, *related: object) -> None:
        """Bring a window and ``related`` objects to the device, prefetch the next window, evict the others."""
        tensors = self._tensors.setdefault(data, _DeviceTensors())
        tensors.related += [each for each in related if not any(each is known for known in tensors.related)]
        successor = self._predict_next(data)
        keep = [data] if successor is None else [data, successor]
        for each in [each for each in self._resident if each not in keep]:
            self._evict(each)
        for each in keep:
            self._fetch(each)
        if tensors.copy_done is not None:
            torch.cuda.current_stream(self._device).wait_event(tensors.copy_done)

    def clone_if_shared(self, data: WindowData) -> Callable[[Tensor], Tensor]:
        """A function that clones a tensor if it shares memory with the window, so that it survives eviction."""
        storages = _find_storages(self._device, data)
        return lambda each: each.clone() if each.untyped_storage()._cdata in storages else each

    def _predict_next(self, data: WindowData) -> WindowData | None:
        """The window that followed ``data`` the last time. Records that ``data`` follows the previous one."""
        with_grad = torch.is_grad_enabled()
        before, now = self._last_two
        self._successor[with_grad, before, now] = data
        self._last_two = now, id(data)
        return self._successor.get((with_grad, now, id(data)))

    def _fetch(self, data: WindowData) -> None:
        """Start copying a window to the device, on the copy stream."""
        if data in self._resident:
            return
        self._resident.append(data)
        tensors = self._tensors.setdefault(data, _DeviceTensors())
        absent = [(storage, copy) for storage, copy in tensors.storages.values() if not storage.nbytes()]
        for storage, copy in absent:
            storage.resize_(len(copy.bytes))
        if self._copy_stream is None:
            for storage, copy in absent:
                _bytes(storage).copy_(copy.bytes)
            return
        # The allocator orders reuse of memory by the compute stream.
        self._copy_stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._copy_stream):
            for storage, copy in absent:
                _bytes(storage).copy_(copy.bytes, non_blocking=True)
        tensors.copy_done = self._copy_stream.record_event()

    def _evict(self, data: WindowData) -> None:
        """Free the device memory of a window, after copying new tensors to the host."""
        self._resident.remove(data)
        tensors = self._tensors[data]
        if tensors.copy_done is not None:  # do not free memory that is being filled
            torch.cuda.current_stream(self._device).wait_event(tensors.copy_done)
            tensors.copy_done = None
        storages = _find_storages(self._device, data, *tensors.related)
        tensors.storages = {key: tensors.storages.get(key) or (each, _HostCopy(each)) for key, each in storages.items()}
        shared = {key for each in self._resident for key in self._tensors[each].storages}
        for key, (storage, _) in tensors.storages.items():
            if key not in shared:
                storage.resize_(0)


def _find_storages(device: torch.device, *roots: object) -> dict[int, torch.UntypedStorage]:
    """Storages on a device of all tensors reachable from ``roots`` through containers and strobe objects."""
    storages: dict[int, torch.UntypedStorage] = {}
    seen: set[int] = set()
    stack: list[object] = list(roots)
    while stack:
        each = stack.pop()
        if id(each) in seen or isinstance(each, (*_NOT_OFFLOADED, OffloadedWindows)):
            continue
        seen.add(id(each))
        if isinstance(each, Tensor):
            if each.device == device and each.layout == torch.strided:
                storage = each.untyped_storage()
                storages |= {storage._cdata: storage} if storage.resizable() else {}
        elif isinstance(each, dict):
            stack += each.values()
        elif isinstance(each, list | tuple):
            stack += each
        elif type(each).__module__.partition(".")[0] == "strobe":
            stack += getattr(each, "__dict__", {}).values()
    return storages


class _HostCopy:
    """Host copy of a storage, pinned for CUDA devices so that copies overlap with computation. torch's own pinned
    allocator would round its size up to a power of two."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        whole = _bytes(storage)
        if whole.is_cuda and len(whole) >= _MIN_PINNED_BYTES:
            self.bytes = self._pin(len(whole))
            self.bytes.copy_(whole)
        else:
            self.bytes = whole.to("cpu", copy=True)

    def _pin(self, size: int) -> Tensor:
        """Allocate whole pages and pin them."""
        pages, runtime = torch.frombuffer(mmap(-1, size), dtype=torch.uint8), torch.cuda.cudart()
        if runtime.cudaHostRegister(pages.data_ptr(), size, 0) != runtime.cudaError.success:
            raise OptionError(
                f"cannot pin {file_size(size)} of host memory for offloaded windows: use fewer snapshots, or --offload "
                "never with a smaller --window"
            )
        finalize(self, runtime.cudaHostUnregister, pages.data_ptr()).atexit = False
        return pages


def _bytes(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
