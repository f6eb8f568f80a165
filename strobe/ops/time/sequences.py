"""Node sequences over a window of snapshots, cut into tiles of nodes that stay in cache through time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strobe.ops.sparse.csr import IntArray

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


@dataclass(frozen=True)
class SnapshotSlice:
    """Cells ``start:stop`` of one tile in one snapshot, at positions ``at`` of the tile (None: all are present)."""

    t: int
    start: int
    stop: int
    at: Tensor | None


@dataclass(frozen=True)
class SlotTile:
    """Slots ``start:stop`` and their cells per non-empty snapshot."""

    start: int
    stop: int
    slices: tuple[SnapshotSlice, ...]

    @property
    def num_slots(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, eq=False)
class Grid:
    """Tiles as arrays: tile i has slots ``edges[i:i + 2]`` and in snapshot t the cells ``bounds[t, i:i + 2]``.

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

    def snapshot_slices(self) -> Iterator[SnapshotSlice]:
        """Yield the cells of each snapshot, including empty snapshots."""
        for t in range(self.num_snapshots):
            start, stop = self.cell_ptr[t], self.cell_ptr[t + 1]
            yield SnapshotSlice(t, start, stop, None if stop - start == self.num_slots else self.slots[start:stop])

    @cached_property
    def slots(self) -> Tensor:
        """Slot of every cell, [C], on the device."""
        if self.slot is None:
            return torch.arange(self.num_slots, device=self.device).repeat(self.num_snapshots)
        return torch.from_numpy(self.slot).to(self.device)

    def tiles(self, rows: int) -> tuple[SlotTile, ...]:
        """Ranges of slots with about ``rows`` cells per snapshot; deterministic."""
        cut = self._tiles.get(rows)
        if cut is None:
            cut = self._tiles[rows] = tuple(self._make_tiles(rows))
        return cut

    @cached_property
    def grids(self) -> Mapping[int, Grid]:
        """The tiles of ``tiles(rows)`` as arrays, for kernels, by ``rows``. Each is made when it is first read."""
        return _Grids(self)

    @cached_property
    def plans(self) -> dict[type, Any]:
        """Cached kernel plans by type."""
        return {}

    @cached_property
    def _tiles(self) -> dict[int, tuple[SlotTile, ...]]:
        return {}

    def _make_tiles(self, rows: int) -> Iterator[SlotTile]:
        grid = self.grids[rows]
        for i, (first, last) in enumerate(pairwise(grid.edges.tolist())):
            slices = []
            for t, (start, stop) in enumerate(grid.bounds[:, i : i + 2].tolist()):
                if start < stop:
                    at = None if stop - start == last - first else self.slots[start:stop] - first
                    slices.append(SnapshotSlice(t, start, stop, at))
            yield SlotTile(first, last, tuple(slices))


class _Grids(dict[int, Grid]):
    def __init__(self, sequences: Sequences) -> None:
        super().__init__()
        self._sequences = sequences

    def __missing__(self, rows: int) -> Grid:
        sequences = self._sequences
        filled = sum(stop > start for start, stop in pairwise(sequences.cell_ptr))
        mean = max(sequences.num_cells / max(filled, 1), 1.0)
        width = max(1, min(MAX_TILE_SLOTS, round(rows * sequences.num_slots / mean)))
        transport = sequences.transport
        cuts, order = ((0, sequences.num_slots), (0,)) if transport is None else (transport.cuts, transport.order)
        starts = [np.arange(first, end, width) for first, end in pairwise(cuts)]
        edges = np.concatenate([*starts, [sequences.num_slots]])
        tiles = np.cumsum([0, *map(len, starts)]).tolist()
        bounds = np.array([self._tile_bounds(t, edges) for t in range(sequences.num_snapshots)], np.int64)
        bounds = bounds.reshape(sequences.num_snapshots, len(edges))
        grid = self[rows] = Grid(torch.from_numpy(edges), torch.from_numpy(bounds), tuple(pairwise(tiles)), order)
        return grid

    def _tile_bounds(self, t: int, edges: IntArray) -> IntArray:
        start, stop = self._sequences.cell_ptr[t : t + 2]
        slot = self._sequences.slot
        return edges + start if slot is None else np.searchsorted(slot[start:stop], edges) + start
