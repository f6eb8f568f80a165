"""Sequences of cells: who is present when, and how nodes are cut into tiles that run through time in cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strobe.ops.csr import IntArray

MAX_TILE_SLOTS = 65_536


class Errand(ABC):
    """States on their way while one kernel runs. ``stage`` counts the hand's stretches of slots.

    States are matrices with a row per slot; a kernel may have several.
    """

    @abstractmethod
    def take(self, stage: int, first: Sequence[Tensor]) -> None:
        """Puts states that come from elsewhere into the first ones."""

    @abstractmethod
    def give(self, stage: int, last: Sequence[Tensor]) -> None:
        """Sends last states that go on elsewhere."""

    @abstractmethod
    def turn(self) -> None:
        """The way back begins, from the last stage to the first."""

    @abstractmethod
    def take_back(self, stage: int, d_last: Sequence[Tensor]) -> None:
        """Adds gradients of states that went elsewhere to those of the last states."""

    @abstractmethod
    def give_back(self, stage: int, d_first: Sequence[Tensor]) -> None:
        """Sends gradients of first states that came from elsewhere; here they are nobody's any more."""


class Hand(ABC):
    """Who carries states between parts of a time stage that run in different places."""

    cuts: tuple[int, ...]
    """Slots at which stretches begin, and the end."""

    order: tuple[int, ...]
    """Which stretch goes first, second, …"""

    @abstractmethod
    def send_out(self, states: Sequence[Tensor]) -> Errand:
        """For one run of a kernel with states like these."""


@dataclass(frozen=True)
class Stretch:
    """The cells of one tile in one snapshot: rows ``start:stop`` of the cells.

    ``at`` gives their places in the tile, or is None where everybody in the tile is present.
    """

    t: int
    start: int
    stop: int
    at: Tensor | None


@dataclass(frozen=True)
class Tile:
    """Slots ``start:stop`` and their cells, snapshot by snapshot, empty ones left out."""

    start: int
    stop: int
    stretches: tuple[Stretch, ...]

    @property
    def num_slots(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, eq=False)
class Grid:
    """Tiles as arrays: tile i has slots ``edges[i:i + 2]`` and in snapshot t the cells ``bounds[t, i:i + 2]``.

    ``stages`` are the tiles (first, end) that are computed together: all, unless states are handed over in between;
    ``order`` says which go first.
    """

    edges: Tensor  # [tiles + 1]
    bounds: Tensor  # [T, tiles + 1]
    stages: tuple[tuple[int, int], ...]
    order: tuple[int, ...]

    @property
    def num_tiles(self) -> int:
        return len(self.edges) - 1

    @cached_property
    def most_rows(self) -> int:
        """The most cells a tile has in one snapshot."""
        return int(self.bounds.diff(dim=1).max()) if self.bounds.numel() and self.num_tiles else 0

    @cached_property
    def most_slots(self) -> int:
        return int(self.edges.diff().max()) if self.num_tiles else 0

    @cached_property
    def most_cells(self) -> int:
        """The most cells a tile has in all snapshots together."""
        return int(self.bounds.diff(dim=1).sum(0).max()) if self.bounds.numel() and self.num_tiles else 0


@dataclass(frozen=True, eq=False)
class Leaving:
    """Cells after which sequences are to be cut, at most one of each: for each snapshot ``rows`` among all cells and
    their ``slots``, ascending over all snapshots."""

    rows: tuple[slice, ...]
    slots: tuple[IntArray, ...]

    def put(self, t: int, states: Tensor, rows: Tensor) -> None:
        """Puts rows that are those of snapshot t's cells into the states of their slots."""
        slots = self.slots[t]
        if not len(slots):
            return
        first, last = int(slots[0]), int(slots[-1]) + 1
        if last - first == len(slots):  # nobody is missing: a slice is much faster than an index
            states[first:last] = rows
        else:
            states[torch.from_numpy(slots).to(states.device)] = rows

    def put_all(self, states: Tensor, after: Tensor) -> None:
        """The same of all snapshots, from rows after each cell."""
        for t, rows in enumerate(self.rows):
            self.put(t, states, after[rows])


@dataclass(frozen=True, eq=False)
class Sequences:
    """Cells numbered t-major, in each snapshot by ascending *slot*, the number of the node whose cell it is.

    ``slot`` is None where all ``num_slots`` nodes are present in every snapshot. Because slots ascend, the cells of
    a range of slots are one stretch of rows in every snapshot: a tile of nodes reads and writes slices, whoever is
    missing, and only its small state needs an index.

    ``hand`` is where sequences go on elsewhere: kernels then go through its stretches of slots one after the other.
    ``leaving``: a stage says which state slots had after those cells, in place of the last; it has no gradient.
    """

    cell_ptr: tuple[int, ...]  # [T + 1]
    slot: IntArray | None  # [C]
    num_slots: int
    device: torch.device
    hand: Hand | None = None
    leaving: Leaving | None = None

    @classmethod
    def of(cls, slots: Sequence[IntArray], num_slots: int, device: torch.device | str = "cpu") -> Sequences:
        """From the ascending slots present in each snapshot."""
        ptr = np.concatenate(([0], np.cumsum([len(present) for present in slots], dtype=np.int64)))
        everyone = all(len(present) == num_slots for present in slots)
        slot = None if everyone else np.concatenate([*slots, np.empty(0, np.int64)]).astype(np.int64)
        return cls(tuple(ptr.tolist()), slot, num_slots, torch.device(device))

    @property
    def num_snapshots(self) -> int:
        return len(self.cell_ptr) - 1

    @property
    def num_cells(self) -> int:
        return self.cell_ptr[-1]

    def stretches(self) -> Iterator[Stretch]:
        """All slots as one tile, snapshot by snapshot, empty ones too."""
        for t in range(self.num_snapshots):
            start, stop = self.cell_ptr[t], self.cell_ptr[t + 1]
            yield Stretch(t, start, stop, None if stop - start == self.num_slots else self.slots[start:stop])

    @cached_property
    def slots(self) -> Tensor:
        """The slot of every cell, [C], on the device."""
        if self.slot is None:
            return torch.arange(self.num_slots, device=self.device).repeat(self.num_snapshots)
        return torch.from_numpy(self.slot).to(self.device)

    def tiles(self, rows: int) -> tuple[Tile, ...]:
        """Ranges of slots with about ``rows`` cells a snapshot; the same for the same sequences, always."""
        cut = self._tiles.get(rows)
        if cut is None:
            cut = self._tiles[rows] = tuple(self._cut(rows))
        return cut

    def grid(self, rows: int) -> Grid:
        """The same tiles as arrays, for kernels that walk them."""
        grid = self._grids.get(rows)
        if grid is None:
            filled = sum(stop > start for start, stop in pairwise(self.cell_ptr))  # a rank may have few of them
            mean = max(self.num_cells / max(filled, 1), 1.0)
            width = max(1, min(MAX_TILE_SLOTS, round(rows * self.num_slots / mean)))
            cuts = (0, self.num_slots) if self.hand is None else self.hand.cuts
            starts = [np.arange(first, end, width) for first, end in pairwise(cuts)]
            edges = np.concatenate([*starts, [self.num_slots]])
            tiles = np.cumsum([0, *map(len, starts)]).tolist()
            bounds = np.array([self._places(t, edges) for t in range(self.num_snapshots)], np.int64)
            bounds = bounds.reshape(self.num_snapshots, len(edges))
            order = (0,) if self.hand is None else self.hand.order
            cells = torch.from_numpy(edges), torch.from_numpy(bounds)
            grid = self._grids[rows] = Grid(*cells, tuple(pairwise(tiles)), order)
        return grid

    @cached_property
    def plans(self) -> dict[type, Any]:
        """How kernels go through them, by kind, each made once."""
        return {}

    @cached_property
    def _tiles(self) -> dict[int, tuple[Tile, ...]]:
        return {}

    @cached_property
    def _grids(self) -> dict[int, Grid]:
        return {}

    def _cut(self, rows: int) -> Iterator[Tile]:
        grid = self.grid(rows)
        for i, (first, last) in enumerate(pairwise(grid.edges.tolist())):
            stretches = []
            for t, (start, stop) in enumerate(grid.bounds[:, i : i + 2].tolist()):
                if start < stop:
                    at = None if stop - start == last - first else self.slots[start:stop] - first
                    stretches.append(Stretch(t, start, stop, at))
            yield Tile(first, last, tuple(stretches))

    def _places(self, t: int, edges: IntArray) -> IntArray:
        start, stop = self.cell_ptr[t], self.cell_ptr[t + 1]
        if self.slot is None:
            return edges + start
        return np.searchsorted(self.slot[start:stop], edges) + start
