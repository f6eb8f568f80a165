"""Windows out of what a rank has at hand: nothing is fetched, neither rows of others nor what is asked of them."""

from __future__ import annotations

from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from strobe.batching import Batch
from strobe.engine.asked import Asked, asked
from strobe.engine.windows import Segment, Window
from strobe.ops.csr import IntArray
from strobe.tasks.base import Examples, Problem
from strobe.view import Cache, ChosenCells


class _Known(NamedTuple):
    """What training asks of the rank's cells: the example of each cell of the cache (-1: none), and all answers."""

    example: Tensor  # [c]
    y: Tensor  # [e, *]


class AtHand:
    """The cache of a rank, and what training asks of its own nodes."""

    def __init__(self, cache: Cache, own: npt.NDArray[np.bool_], problem: Problem, device: torch.device) -> None:
        self.cache, self._own, self._problem, self._device = cache, own, problem, device
        self.own: IntArray = cache.nodes[own[cache.nodes]]
        """The rank's own nodes that are ever present."""

    def window(self, batch: Batch) -> Window:
        """The cells of a batch's nodes that are the rank's (None: of all those) with what they read, and what is
        asked."""
        wanted = self.own if batch.targets is None else batch.targets[self._own[batch.targets]]
        found = self.cache.around(batch.times, self.cache.numbers(wanted))
        cells = ChosenCells(self.cache, batch.times, found, self._device, goes_on=batch.carries)
        question = partial(self._asked, cells, batch)
        return (Segment(batch.times, cells, fresh=not batch.carries, question=question),)

    def ready(self, batch: Batch) -> Window:
        """The same with all that a step will ask of the cells, so that the step does not make it."""
        window = self.window(batch)
        reading = self.cache.reading
        for segment in window:
            cells = segment.cells
            for key in reading.inputs:
                rows = cells.x
                for norm in key:
                    rows = cells.aggregated_input(rows, norm)
            for norm in reading.norms:
                for each in cells.single if reading.steps else (cells,):
                    _ = each.matrix(norm).transposed
            _ = cells.x, cells.sequences, asked(self._problem, segment, self._problem.split.train)
        return window

    def num_bytes(self, window: Window) -> int:
        """What a window that is ready takes."""
        assert self.cache.graph.features is not None
        item = torch.empty(0, dtype=self.cache.dtype).element_size()
        columns = self.cache.graph.features.shape[0] * (1 + len(self.cache.reading.inputs))
        cells = sum(segment.cells.num_cells for segment in window)
        arcs = sum(segment.cells.num_arcs for segment in window)
        answers = self._known.y[:1].numel() * self._known.y.element_size()
        positions = 3 * 8 + 2 * 8 * len(self.cache.reading.norms)  # of cells in the cache, of sequences, of rows
        entries = 3 * len(self.cache.reading.norms) * (4 + item)  # as found, as a matrix, transposed
        return cells * (columns * item + positions + answers) + arcs * entries

    def _asked(self, cells: ChosenCells, batch: Batch) -> Asked | None:
        """What is asked of the chosen nodes in the snapshots that are asked."""
        first, last = (cells.cell_ptr[t - batch.times.start] for t in (batch.asked.start, batch.asked.stop))
        rows = cells.targets
        if batch.asked != batch.times:
            rows = rows[(rows >= first) & (rows < last)]
        example = self._known.example.index_select(0, cells.in_cache.index_select(0, rows))
        there = (example >= 0).nonzero()[:, 0]
        if not len(there):
            return None
        if len(there) < len(rows):
            rows, example = rows.index_select(0, there), example.index_select(0, there)
        y = self._known.y.index_select(0, example).to(self._device)
        return Asked(Examples(None if len(rows) == cells.num_cells else (rows.to(self._device),), y))

    @cached_property
    def _known(self) -> _Known:
        cache, found = self.cache, []
        example = torch.full((cache.num_cells,), -1, dtype=torch.int64)
        number = 0
        for k, t in enumerate(cache.times):
            examples = self._problem.examples(t)
            if examples is None:
                continue
            snapshot = cache.graph[t]
            rows = np.arange(len(examples)) if examples.rows is None else examples.rows[0].numpy()
            of_cell = np.full(snapshot.num_nodes, -1, np.int64)
            of_cell[rows] = np.arange(len(rows))
            here = slice(int(cache.cell_ptr[k]), int(cache.cell_ptr[k + 1]))
            nodes = cache.nodes[cache.node[here]]
            mine = np.where(self._own[nodes], of_cell[np.searchsorted(snapshot.nodes, nodes)], -1)
            kept = np.flatnonzero(mine >= 0)
            example[here][torch.from_numpy(kept)] = torch.arange(number, number + len(kept))
            y = examples.y[torch.from_numpy(mine[kept])]
            found.append(y.to(cache.dtype) if y.is_floating_point() else y)
            number += len(kept)
        return _Known(example, torch.cat(found) if found else torch.empty(0))
