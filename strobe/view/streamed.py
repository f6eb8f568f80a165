"""Windows that are more than a GPU's memory holds: they wait in the host's, and come while the one before is computed.

What a pass needs of a window (features, aggregates of them, matrices, plans of kernels, examples) is made once and
never changes. Here its memory on the device is given back between two passes and filled again from a copy; tensors and
views of them stay the objects they are.
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
from strobe.graph import DynamicGraph
from strobe.numbers import file_size

if TYPE_CHECKING:
    from strobe.view.cells import Cells

_NO_LUGGAGE = (DynamicGraph, Comm, nn.Module, np.ndarray)
"""What cells hold that is not theirs alone, or not on a device."""

_WORTH_LOCKING = 1 << 16
"""Bytes from which on a copy is locked into the host's memory; fewer are on the GPU before it could be told so."""


@dataclass(eq=False)
class _Luggage:
    """What some cells need on the device: storages by their identity, each with its copy in the host's memory.

    ``beside`` are objects that belong to the cells although these do not know them; ``arrived`` is when the last copy
    to the device has ended.
    """

    pieces: dict[int, tuple[torch.UntypedStorage, _Copy]] = field(default_factory=dict)
    beside: list[object] = field(default_factory=list)
    arrived: torch.cuda.Event | None = None


class Streamed:
    """Which cells are on the device: those that are computed, and those that followed them the last time.

    All that it is told is who is computed now. Who comes next it remembers from one epoch to the next, by the two
    before and by whether gradients are wanted, which tells training, its way back and evaluation apart.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = torch.empty(0, device=device).device  # with the number that tensors give it
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._known: WeakKeyDictionary[Cells, _Luggage] = WeakKeyDictionary()
        self._here: list[Cells] = []
        self._follower: WeakValueDictionary[tuple[bool, int, int], Cells] = WeakValueDictionary()
        self._last_two: tuple[int, int] = (0, 0)

    @property
    def device_bytes(self) -> int:
        """What is on the device now of cells that have left it before."""
        return sum(storage.nbytes() for luggage in self._known.values() for storage, _ in luggage.pieces.values())

    @property
    def host_bytes(self) -> int:
        """What the copies take."""
        return sum(len(copy.bytes) for luggage in self._known.values() for _, copy in luggage.pieces.values())

    def enter(self, cells: Cells, *beside: object) -> None:
        """Some cells are computed now, with all that was made for them and for what stands ``beside`` them."""
        luggage = self._known.setdefault(cells, _Luggage())
        luggage.beside += [each for each in beside if not any(each is known for known in luggage.beside)]
        follower = self._follower_of(cells)
        wanted = [cells] if follower is None else [cells, follower]
        for each in [each for each in self._here if each not in wanted]:
            self._leave(each)
        for each in wanted:
            self._fetch(each)
        if luggage.arrived is not None:
            torch.cuda.current_stream(self._device).wait_event(luggage.arrived)

    def outlives(self, cells: Cells) -> Callable[[Tensor], Tensor]:
        """Gives of any tensor one that outlives these cells' stay: a copy, if it shares memory with theirs."""
        theirs = _storages(self._device, cells)
        return lambda each: each.clone() if each.untyped_storage()._cdata in theirs else each

    def _follower_of(self, cells: Cells) -> Cells | None:
        """Who came after these the last time; that these have come now is remembered."""
        learns = torch.is_grad_enabled()
        before, now = self._last_two
        self._follower[learns, before, now] = cells
        self._last_two = now, id(cells)
        return self._follower.get((learns, now, id(cells)))

    def _fetch(self, cells: Cells) -> None:
        """Fills memory for what these cells need, beside whatever is computed."""
        if cells in self._here:
            return
        self._here.append(cells)
        luggage = self._known.setdefault(cells, _Luggage())
        absent = [(storage, copy) for storage, copy in luggage.pieces.values() if not storage.nbytes()]
        for storage, copy in absent:
            storage.resize_(len(copy.bytes))
        if self._side is None:
            for storage, copy in absent:
                _bytes(storage).copy_(copy.bytes)
            return
        # The memory may have been others' up to now, in the order of the stream that computes.
        self._side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._side):
            for storage, copy in absent:
                _bytes(storage).copy_(copy.bytes, non_blocking=True)
        luggage.arrived = self._side.record_event()

    def _leave(self, cells: Cells) -> None:
        """Gives the memory of these cells back, once there are copies of all that is in it."""
        self._here.remove(cells)
        luggage = self._known[cells]
        if luggage.arrived is not None:  # nobody gets the memory while it is being filled
            torch.cuda.current_stream(self._device).wait_event(luggage.arrived)
            luggage.arrived = None
        theirs = _storages(self._device, cells, *luggage.beside)
        luggage.pieces = {key: luggage.pieces.get(key) or (each, _Copy(each)) for key, each in theirs.items()}
        others = {key for each in self._here for key in self._known[each].pieces}
        for key, (storage, _) in luggage.pieces.items():
            if key not in others:
                storage.resize_(0)


def _storages(device: torch.device, *roots: object) -> dict[int, torch.UntypedStorage]:
    """Memory on a device of all tensors that objects of this package hold, directly or through others."""
    storages: dict[int, torch.UntypedStorage] = {}
    seen: set[int] = set()
    found: list[object] = list(roots)
    while found:
        each = found.pop()
        if id(each) in seen or isinstance(each, (*_NO_LUGGAGE, Streamed)):
            continue
        seen.add(id(each))
        if isinstance(each, Tensor):
            if each.device == device and each.layout == torch.strided:
                storage = each.untyped_storage()
                storages |= {storage._cdata: storage} if storage.resizable() else {}
        elif isinstance(each, dict):
            found += each.values()
        elif isinstance(each, list | tuple):
            found += each
        elif type(each).__module__.partition(".")[0] == "strobe":
            found += getattr(each, "__dict__", {}).values()
    return storages


class _Copy:
    """The bytes of a storage in the host's memory, locked into it where the device is a GPU: only from there can it
    copy while it computes. Memory that torch itself locks would have room for the next power of two."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        whole = _bytes(storage)
        if whole.is_cuda and len(whole) >= _WORTH_LOCKING:
            self.bytes = self._locked(len(whole))
            self.bytes.copy_(whole)
        else:
            self.bytes = whole.to("cpu", copy=True)

    def _locked(self, size: int) -> Tensor:
        """Pages of its own: a page is locked as a whole."""
        pages, runtime = torch.frombuffer(mmap(-1, size), dtype=torch.uint8), torch.cuda.cudart()
        if runtime.cudaHostRegister(pages.data_ptr(), size, 0) != runtime.cudaError.success:
            raise OptionError(
                f"the host has no {file_size(size)} of memory left that can be locked for windows that wait: take "
                "fewer snapshots, or --keep device with a smaller --window"
            )
        finalize(self, runtime.cudaHostUnregister, pages.data_ptr()).atexit = False
        return pages


def _bytes(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
