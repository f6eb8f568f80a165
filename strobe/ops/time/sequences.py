"""Node sequences over a window of snapshots, cut into tiles of nodes that stay in cache through time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from strobe.ops.sparse.csr import IntArray

T = TypeVar("T")

MAX_TILE_SLOTS = 65_536


class StateTransfer(ABC):
    """Transfers of recurrent states during one kernel run. ``stage`` indexes the slot ranges of the transport.

    States are matrices with a row per slot; a kernel may have several.
    """

    @abstractmethod
    def recv(self, stage: int, first: Sequence[Tensor]) -> None:
        """Write states received from other ranks into the initial states."""

    @abstractmethod
    def send(self, stage: int, last: Sequence[Tensor]) -> None:
        """Send final states to the ranks that continue their sequences."""

    @abstractmethod
    def begin_backward(self) -> None:
        """Start the backward pass, from the last stage to the first."""

    @abstractmethod
    def recv_grad(self, stage: int, d_last: Sequence[Tensor]) -> None:
        """Add the gradients of sent states to those of the final states."""

    @abstractmethod
    def send_grad(self, stage: int, d_first: Sequence[Tensor]) -> None:
        """Send gradients of received initial states to the ranks that own them, and zero them locally."""


class StateTransport(ABC):
    """Transport of recurrent states between ranks that run parts of one time stage."""

    cuts: tuple[int, ...]
    """Slot range boundaries, [stages + 1]."""

    order: tuple[int, ...]
    """Order in which slot ranges run."""

    @abstractmethod
    def start(self, states: Sequence[Tensor]) -> StateTransfer:
        """Begin the transfers of one kernel run with states of these shapes."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Tiles of slots: tile i has slots ``edges[i:i + 2]`` and in snapshot t the cells ``bounds[t, i:i + 2]``.

    ``stages`` are ranges of tiles computed together (one range unless states are transferred in between), and ``order``
    is the order in which they run.
    """

    edges: Tensor  # [tiles + 1]
    bounds: Tensor  # [T, tiles + 1]
    stages: tuple[tuple[int, int], ...]
    order: tuple[int, ...]

    @cached_property
    def num_tiles(self) -> int:
        return len(self.edges) - 1

    @cached_property
    def most_rows(self) -> int:
        """Largest number of cells of a tile in one snapshot."""
        return int(self.bounds.diff(dim=1).max()) if self.bounds.numel() and self.num_tiles else 0

    @cached_property
    def most_slots(self) -> int:
        return int(self.edges.diff().max()) if self.num_tiles else 0

    @cached_property
    def most_cells(self) -> int:
        """Largest number of cells of a tile over all snapshots."""
        return int(self.bounds.diff(dim=1).sum(0).max()) if self.bounds.numel() and self.num_tiles else 0


@dataclass(frozen=True, eq=False)
class StateCapture:
    """Cells whose states are captured, at most one per sequence: ``rows`` among all cells and ``slots``, per snapshot,
    slots ascending over all snapshots."""

    rows: tuple[slice, ...]
    slots: tuple[IntArray, ...]

    def scatter_snapshot(self, t: int, states: Tensor, rows: Tensor) -> None:
        """Write the rows of snapshot t's captured cells to the states of their slots."""
        slots = self.slots[t]
        if not len(slots):
            return
        first, last = int(slots[0]), int(slots[-1]) + 1
        if last - first == len(slots):  # contiguous: a slice is much faster than an index
            states[first:last] = rows
        else:
            states[torch.from_numpy(slots).to(states.device)] = rows

    def scatter(self, states: Tensor, after: Tensor) -> None:
        """Write the captured cells of all snapshots, from the states after every cell."""
        for t, rows in enumerate(self.rows):
            self.scatter_snapshot(t, states, after[rows])


@dataclass(frozen=True, eq=False)
class Sequences:
    """Cells in snapshot-major order, in each snapshot by ascending *slot* (the index of the node).

    ``slot`` is None if all ``num_slots`` nodes are present in every snapshot. Because slots ascend, the cells of a
    range of slots are contiguous in every snapshot: a tile reads and writes slices, and only its state is indexed.

    ``transport``: sequences continue on other ranks; kernels run its slot ranges one after the other.
    ``capture``: a stage returns the states after these cells, without gradient, instead of the final states.
    """

    cell_ptr: tuple[int, ...]  # [T + 1]
    slot: IntArray | None  # [C]
    num_slots: int
    device: torch.device
    transport: StateTransport | None = None
    capture: StateCapture | None = None

    @classmethod
    def of(cls, slots: Sequence[IntArray], num_slots: int, device: torch.device | str = "cpu") -> Sequences:
        """Build from the ascending slots present in each snapshot."""
        ptr = np.concatenate(([0], np.cumsum([len(present) for present in slots], dtype=np.int64)))
        everyone = all(len(present) == num_slots for present in slots)
        slot = None if everyone else np.concatenate([*slots, np.empty(0, np.int64)]).astype(np.int64)
        return cls(tuple(ptr.tolist()), slot, num_slots, torch.device(device))

    @cached_property
    def num_snapshots(self) -> int:
        return len(self.cell_ptr) - 1

    @cached_property
    def num_cells(self) -> int:
        return self.cell_ptr[-1]

    @cached_property
    def slots(self) -> Tensor:
        """Slot of every cell, [C], on the device."""
        if self.slot is None:
            return torch.arange(self.num_slots, device=self.device).repeat(self.num_snapshots)
        return torch.from_numpy(self.slot).to(self.device)

    @cached_property
    def grid(self) -> Callable[[int], Grid]:
        """``grid(rows)``: tiles of about ``rows`` cells per snapshot, made once; deterministic."""
        return cache(partial(_make_grid, self.cell_ptr, self.slot, self.num_slots, self.transport))

    def plan(self, make: Callable[[Sequences], T]) -> T:
        """Plan of a kernel, made once per ``Sequences`` object."""
        if make not in self._plans:
            self._plans[make] = make(self)
        plan: T = self._plans[make]
        return plan

    @cached_property
    def _plans(self) -> dict[Any, Any]:
        return {}


def _make_grid(
    cell_ptr: tuple[int, ...], slot: IntArray | None, num_slots: int, transport: StateTransport | None, rows: int
) -> Grid:
    filled = sum(stop > start for start, stop in pairwise(cell_ptr))
    mean = max(cell_ptr[-1] / max(filled, 1), 1.0)
    width = max(1, min(MAX_TILE_SLOTS, round(rows * num_slots / mean)))
    cuts, order = ((0, num_slots), (0,)) if transport is None else (transport.cuts, transport.order)
    starts = [np.arange(first, end, width) for first, end in pairwise(cuts)]
    edges = np.concatenate([*starts, [num_slots]])
    tiles = np.cumsum([0, *map(len, starts)]).tolist()
    bounds = [
        (edges if slot is None else np.searchsorted(slot[start:stop], edges)) + start
        for start, stop in pairwise(cell_ptr)
    ]
    by_snapshot = np.array(bounds, np.int64).reshape(len(cell_ptr) - 1, len(edges))
    return Grid(torch.from_numpy(edges), torch.from_numpy(by_snapshot), tuple(pairwise(tiles)), order)
