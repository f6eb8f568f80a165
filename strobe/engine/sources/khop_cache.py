"""Windows built from a rank's k-hop cache: neither rows nor examples are fetched."""

from __future__ import annotations

from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from strobe.batching import BatchSpec
from strobe.engine.examples import LocalExamples, training_examples
from strobe.engine.windows import Segment, Window
from strobe.ops.sparse.csr import IntArray
from strobe.tasks.base import Examples, Problem
from strobe.view import KHopCache, SubgraphData


class _CachedExamples(NamedTuple):
    """Training examples of the rank's cells: the example of each cached cell (-1: none), and all labels."""

    example: Tensor  # [c]
    y: Tensor  # [e, *]


class KHopCacheLoader:
    """Builds windows from a rank's k-hop cache, and examples of its own nodes."""

    def __init__(self, cache: KHopCache, own: npt.NDArray[np.bool_], problem: Problem, device: torch.device) -> None:
        self.cache, self._is_own, self._problem, self._device = cache, own, problem, device
        self.own_nodes: IntArray = cache.nodes[own[cache.nodes]]
        """The rank's own nodes that are ever present."""

    def load_window(self, batch: BatchSpec) -> Window:
        """Build the subgraph of a batch: the rank's seed nodes (all its nodes if ``seed_nodes`` is None), their k-hop
        neighborhood, and their training examples."""
        wanted = self.own_nodes if batch.seed_nodes is None else batch.seed_nodes[self._is_own[batch.seed_nodes]]
        found = self.cache.khop_subgraph(batch.times, self.cache.local_ids(wanted))
        cells = SubgraphData(self.cache, batch.times, found, self._device, continues_state=batch.continues_state)
        question = partial(self._examples, cells, batch)
        return (Segment(batch.times, cells, resets_state=not batch.continues_state, examples_fn=question),)

    def load_prepared_window(self, batch: BatchSpec) -> Window:
        """Build a window with all that a step reads, so that the step builds nothing."""
        window = self.load_window(batch)
        reading = self.cache.model_reads
        for segment in window:
            cells = segment.data
            for key in reading.inputs:
                rows = cells.x
                for norm in key:
                    rows = cells.aggregate_input(rows, norm)
            for norm in reading.norms:
                for each in cells.single if reading.steps else (cells,):
                    _ = each.matrix(norm).transposed
            _ = cells.x, cells.sequences, training_examples(self._problem, segment, self._problem.split.train)
        return window

    def window_bytes(self, window: Window) -> int:
        """What a window that is ready takes."""
        assert self.cache.graph.features is not None
        item = torch.empty(0, dtype=self.cache.dtype).element_size()
        columns = self.cache.graph.features.shape[0] * (1 + len(self.cache.model_reads.inputs))
        cells = sum(segment.data.num_cells for segment in window)
        arcs = sum(segment.data.num_arcs for segment in window)
        answers = self._cached_examples.y[:1].numel() * self._cached_examples.y.element_size()
        positions = 3 * 8 + 2 * 8 * len(self.cache.model_reads.norms)  # of cells in the cache, of sequences, of rows
        entries = 3 * len(self.cache.model_reads.norms) * (4 + item)  # as found, as a matrix, transposed
        return cells * (columns * item + positions + answers) + arcs * entries

    def _examples(self, cells: SubgraphData, batch: BatchSpec) -> LocalExamples | None:
        """Examples of the seed nodes in the target snapshots."""
        first, last = (
            cells.cell_ptr[t - batch.times.start] for t in (batch.target_times.start, batch.target_times.stop)
        )
        rows = cells.seed_rows
        if batch.target_times != batch.times:
            rows = rows[(rows >= first) & (rows < last)]
        example = self._cached_examples.example.index_select(0, cells.cache_index.index_select(0, rows))
        there = (example >= 0).nonzero()[:, 0]
        if not len(there):
            return None
        if len(there) < len(rows):
            rows, example = rows.index_select(0, there), example.index_select(0, there)
        y = self._cached_examples.y.index_select(0, example).to(self._device)
        return LocalExamples(Examples(None if len(rows) == cells.num_cells else (rows.to(self._device),), y))

    @cached_property
    def _cached_examples(self) -> _CachedExamples:
        cache, found = self.cache, []
        example = torch.full((cache.num_cells,), -1, dtype=torch.int64)
        number = 0
        for k, t in enumerate(cache.times):
            examples = self._problem.examples(t)
            if examples is None:
                continue
            snapshot = cache.graph[t]
            rows = np.arange(len(examples)) if examples.cell_index is None else examples.cell_index[0].numpy()
            of_cell = np.full(snapshot.num_nodes, -1, np.int64)
            of_cell[rows] = np.arange(len(rows))
            here = slice(int(cache.cell_ptr[k]), int(cache.cell_ptr[k + 1]))
            nodes = cache.nodes[cache.node[here]]
            mine = np.where(self._is_own[nodes], of_cell[np.searchsorted(snapshot.nodes, nodes)], -1)
            kept = np.flatnonzero(mine >= 0)
            example[here][torch.from_numpy(kept)] = torch.arange(number, number + len(kept))
            y = examples.labels[torch.from_numpy(mine[kept])]
            found.append(y.to(cache.dtype) if y.is_floating_point() else y)
            number += len(kept)
        return _CachedExamples(example, torch.cat(found) if found else torch.empty(0))
