"""Some cells of a cache as a window of their own."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from strobe.ops.csr import IntArray
from strobe.ops.normalise import Csr, Norm
from strobe.ops.sequences import Sequences
from strobe.ops.sparse import Sparse
from strobe.ops.surroundings import Rows, Surroundings, rows_of
from strobe.view.cache import Cache
from strobe.view.cells import Cells


class ChosenCells(Cells):
    """The cells of some nodes, with whatever they read, cut out of what a rank has at hand: nothing is fetched.

    States have a slot for each node that is here; with ``goes_on`` one for each node of the cache, so that windows
    one after the other agree on them.
    """

    from_graph = False

    def __init__(
        self, cache: Cache, times: range, found: Surroundings, device: torch.device, *, goes_on: bool = False
    ) -> None:
        super().__init__(cache.graph[times.start : times.stop], dtype=cache.dtype, device=device)
        self.cache, self.times, self.found, self.goes_on = cache, times, found, goes_on
        self.cell_ptr = tuple(found.blocks.cell_ptr.tolist())
        self.splits_snapshots = True

    @cached_property
    def targets(self) -> Tensor:
        """Rows of the nodes that were chosen, without those that they read, ascending."""
        if not self.cache.reading.hops:
            return torch.arange(self.num_cells)
        return torch.from_numpy(np.flatnonzero(self.found.distance == 0))

    @cached_property
    def num_arcs(self) -> int:
        return self.found.blocks.num_arcs if self.cache.rows else 0

    @cached_property
    def x(self) -> Tensor:
        x = self._at_hand(self.cache.x)
        self.remember((), x)
        return x

    def aggregated_input(self, x: Tensor, norm: Norm) -> Tensor:
        key = (*self._inputs[id(x)], norm)
        if key not in self._aggregates:
            self.remember(key, self._at_hand(self.cache.aggregates[key]))
        return self._aggregates[key]

    @cached_property
    def sequences(self) -> Sequences:
        present = [self._slot[start:stop] for start, stop in zip(self.cell_ptr, self.cell_ptr[1:], strict=False)]
        return Sequences.of(present, self._num_slots, self.device)

    @cached_property
    def single(self) -> tuple[Cells, ...]:
        return (self,) if self.num_snapshots == 1 else tuple(_Single(self, t) for t in range(self.num_snapshots))

    @cached_property
    def in_cache(self) -> Tensor:
        """Where each cell stands in the cache, [C]."""
        return torch.from_numpy(self.found.cell)

    def _at_hand(self, rows: Tensor) -> Tensor:
        return rows.index_select(0, self.in_cache).to(self.device)

    @cached_property
    def _slots(self) -> tuple[IntArray, int]:
        assert self.found.blocks.node is not None
        node, num_nodes = self.found.blocks.node, self.cache.num_nodes
        if self.goes_on:
            return node, num_nodes
        here = np.zeros(num_nodes, bool)
        here[node] = True
        return (np.cumsum(here, dtype=np.int64) - 1)[node], int(here.sum())

    @property
    def _slot(self) -> IntArray:
        return self._slots[0]

    @property
    def _num_slots(self) -> int:
        return self._slots[1]

    def _whole(self, norm: Norm) -> Sparse:
        blocks = [self._block(t, norm) for t in range(self.num_snapshots)]
        return Sparse.block_diagonal(blocks, dtype=self.dtype, device=self.device)

    def _block(self, t: int, norm: Norm) -> Csr:
        rows = self._matrix_rows(norm)
        first, last = int(rows.arc_ptr[t]), int(rows.arc_ptr[t + 1])
        row_ptr = rows.row_ptr[self.cell_ptr[t] + t : self.cell_ptr[t + 1] + t + 1]
        return row_ptr, rows.col[first:last], None if rows.weight is None else rows.weight[first:last]

    def _matrix_rows(self, norm: Norm) -> Rows:
        blocks, whole = self.found.blocks, self.cache.rows[norm]
        if whole is self.cache.blocks.reads:
            return blocks.reads
        if whole is self.cache.blocks.out:
            assert blocks.out is not None
            return blocks.out
        if norm not in self._others:
            self._others[norm] = rows_of(self.found, whole, self.cache.reading.hops)
        return self._others[norm]

    @cached_property
    def _others(self) -> dict[Norm, Rows]:
        return {}


class _Single(Cells):
    """One snapshot of chosen cells."""

    from_graph = False

    def __init__(self, window: ChosenCells, t: int) -> None:
        super().__init__(window.graph[t : t + 1], dtype=window.dtype, device=window.device)
        self._window, self._t = window, t
        self.cell_ptr = (0, window.cell_ptr[t + 1] - window.cell_ptr[t])

    @cached_property
    def x(self) -> Tensor:
        x = self._window.x[self._window.rows(self._t)]
        self.remember((), x)
        return x

    def aggregated_input(self, x: Tensor, norm: Norm) -> Tensor:
        key = (*self._inputs[id(x)], norm)
        if key not in self._aggregates:
            whole = self._window.x
            for each in key:
                whole = self._window.aggregated_input(whole, each)
            self.remember(key, whole[self._window.rows(self._t)])
        return self._aggregates[key]

    @cached_property
    def sequences(self) -> Sequences:
        return Sequences.of([self._window._slot[self._window.rows(self._t)]], self._window._num_slots, self.device)

    def _whole(self, norm: Norm) -> Sparse:
        return Sparse.block_diagonal([self._window._block(self._t, norm)], dtype=self.dtype, device=self.device)
