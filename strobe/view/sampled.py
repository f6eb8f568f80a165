"""Cells that were drawn for the targets of a batch, with rows fetched from wherever they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strobe.comm import Comm
from strobe.errors import OptionError
from strobe.exchange import TimeEncoder, Timing
from strobe.exchange.base import Columns
from strobe.exchange.shuffle import Shuffling
from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.csr import FloatArray, IntArray, expand_rows
from strobe.ops.normalise import Csr, Norm, inverse
from strobe.ops.picked import picked
from strobe.ops.sampling import Drawn, Sample, sample
from strobe.ops.sequences import Sequences
from strobe.ops.sparse import Sparse, spmm
from strobe.view.cells import Cells
from strobe.view.pieces import Stage


class Topology:
    """Who reads whom in a snapshot, held as long as windows have it: cells are drawn out of it in every step."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes, self.row_ptr, self.col, self.weight = (
            snapshot.nodes,
            snapshot.row_ptr,
            snapshot.col,
            snapshot.weight,
        )

    def sample(self, targets: IntArray, fanouts: Sequence[int], key: int) -> Sample:
        """What some of its cells read, drawn by lot."""
        return sample(self.row_ptr, self.col, self.nodes, targets, fanouts, key)

    def positions(self, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """Which of some nodes, ascending, are present, and where their cells are."""
        at = np.searchsorted(self.nodes, nodes)
        at[at == len(self.nodes)] = 0
        there = np.flatnonzero(self.nodes[at] == nodes) if len(self.nodes) else np.empty(0, np.int64)
        return there, at[there]

    def matrix(self, norm: Norm, found: IntArray, drawn: Drawn) -> Csr:
        """The rows of cells that arcs were drawn for, by the cells found.

        An arc weighs what it does in the whole snapshot, times the number of arcs that it stands for: on average a cell
        reads what it reads there.
        """
        if norm == "mean_out":
            raise OptionError("the model reads along edges, and cells are drawn against them: take batching windows")
        if norm == "loops":
            return _with_loops(drawn, None, np.ones(len(drawn.degree)))
        values = np.ones(len(drawn.arc)) if self.weight is None else self.weight[drawn.arc].astype(np.float64)
        if drawn.share is not None:
            values *= drawn.share
        if norm == "sum":
            plain = self.weight is None and drawn.share is None
            return drawn.row_ptr, drawn.col, None if plain else values
        if norm == "mean":
            readers = found[: len(drawn.degree)]
            return drawn.row_ptr, drawn.col, values * inverse(self._sums[readers])[drawn.reader]
        missing = ~self._has_loop[found]
        root = inverse(np.sqrt(self._sums[found] + missing))
        loops = np.where(missing, root * root, 0.0)[: len(drawn.degree)]
        return _with_loops(drawn, values * root[drawn.reader] * root[drawn.col], loops)

    @cached_property
    def _sums(self) -> FloatArray:
        """The weights of the arcs that reach each cell, together, whatever their sign."""
        if self.weight is None:
            return np.diff(self.row_ptr).astype(np.float64)
        weights = np.abs(self.weight).astype(np.float64)
        return np.bincount(expand_rows(self.row_ptr), weights, len(self.nodes)).astype(np.float64)

    @cached_property
    def _has_loop(self) -> Any:
        rows = expand_rows(self.row_ptr)
        found = np.zeros(len(self.nodes), bool)
        found[rows[rows == self.col]] = True
        return found


@dataclass(frozen=True, eq=False)
class Targets:
    """The nodes that a batch asks, on all ranks, in every snapshot of its window: numbers from 0 on, ascending."""

    present: Sequence[IntArray]  # of each snapshot, which of them are
    owners: Sequence[IntArray]  # and who has their cells
    home: IntArray  # [B] who has each one's newest cell


class SampledCells(Cells):
    """The cells of a rank's targets and what was drawn for them, snapshot by snapshot, targets first in each.

    Of n sparse products one after the other the first is computed for all cells but those drawn last, …, the last for
    targets alone. The time stage has targets alone, each on the rank that has its newest cell. Rows of cells that
    something is not computed for are 0.
    """

    splits_snapshots = True
    from_graph = False

    def __init__(
        self,
        graph: DynamicGraph,
        x: Tensor,
        drawn: Sequence[Sample],
        topologies: Sequence[Topology],
        targets: Targets,
        *,
        comm: Comm,
    ) -> None:
        super().__init__(graph, dtype=x.dtype, device=x.device)
        self.drawn, self.topologies, self._targets, self._comm = drawn, topologies, targets, comm
        self.cell_ptr = (0, *np.cumsum([len(each.position) for each in drawn], dtype=np.int64).tolist())
        self._x = x
        self._levels: dict[int, Level] = {}

    @cached_property
    def x(self) -> Tensor:
        self.remember((), self._x)
        return self._x

    @property
    def comm(self) -> Comm:
        return self._comm

    @cached_property
    def num_arcs(self) -> int:
        return sum(each.num_arcs for each in self.drawn)

    @cached_property
    def target_rows(self) -> Tensor:
        """Rows of this rank's targets."""
        return torch.from_numpy(self.first_rows(0)).to(self.device)

    def first_rows(self, hop: int) -> IntArray:
        """Rows of targets, and of cells drawn for them up to a hop."""
        starts = self.cell_ptr[:-1]
        found = [np.arange(start, start + each.sizes[hop]) for start, each in zip(starts, self.drawn, strict=True)]
        return np.concatenate([np.empty(0, np.int64), *found])

    @property
    def sequences(self) -> Sequences:
        raise OptionError(
            "the model's convolutions read states of nodes, which cells that were drawn do not have: take a model "
            "that convolves before it goes along sequences, or batching windows"
        )

    def timing(self, encoder: TimeEncoder) -> Timing:
        del encoder
        return self._gathering

    @cached_property
    def _gathering(self) -> Gathering:
        return Gathering(self, self._targets, self._comm)

    @cached_property
    def single(self) -> tuple[Cells, ...]:
        raise OptionError(
            "the model goes through snapshots one by one, and cells that were drawn are computed together: take "
            "batching windows"
        )

    def level(self, number: int) -> Level:
        hops = len(self.drawn[0].hops)
        if number >= hops:
            raise OptionError(f"cells were drawn for {hops} sparse products one after the other, not for more")
        if number not in self._levels:
            self._levels[number] = Level(self, hops - 1 - number)
        return self._levels[number]


class Level(Cells):
    """Targets, and cells drawn for them up to a hop, as a convolution sees them: own rows, then those only read."""

    splits_snapshots = True
    from_graph = False

    def __init__(self, window: SampledCells, hop: int) -> None:
        super().__init__(window.graph, dtype=window.dtype, device=window.device)
        self._window, self._hop = window, hop
        own, all_read = window.first_rows(hop), window.first_rows(hop + 1)
        self.cell_ptr = (0, *np.cumsum([each.sizes[hop] for each in window.drawn], dtype=np.int64).tolist())
        only_read = np.setdiff1d(all_read, own, assume_unique=True)
        reads = np.concatenate([own, only_read])
        self._column = np.full(window.num_cells, -1, np.int64)
        self._column[reads] = np.arange(len(reads))
        self._own, self._read = (torch.from_numpy(rows).to(window.device) for rows in (own, reads))

    def run(self, stage: Stage, x: Tensor) -> Tensor:
        """What a convolution gives these cells, as rows of the window; those of others are 0."""
        from strobe.view.view import View

        view = View(self)
        out = view.at_once(stage, self._loaded(x))
        self.level(view.num_products - 1)
        return self._spread(out)

    def level(self, number: int) -> None:
        """Nothing was drawn for a second product, whose rows would not all be there: it is refused."""
        if number:
            raise OptionError("a convolution has one sparse product where cells are drawn; this one has more")

    def aggregate(self, x: Tensor, norm: Norm) -> Tensor:
        """The product of these cells' rows, as rows of the window; an aggregate of inputs is one itself."""
        out = self._spread(spmm(self.matrix(norm), self._loaded(x)))
        if self._window.is_input(x):
            self._window.remember((*self._window.key_of(x), norm), out)
        return out

    def aggregated_input(self, x: Tensor, norm: Norm) -> Tensor:
        return spmm(self.matrix(norm), x)

    def _loaded(self, x: Tensor) -> Tensor:
        rows = x.index_select(0, self._read)
        self.x = self.pulled_x = rows if x is self._window.x else rows[:0]
        if self._window.is_input(x):
            self.remember(self._window.key_of(x), rows)
        return rows

    def _spread(self, rows: Tensor) -> Tensor:
        return rows.new_zeros(self._window.num_cells, rows.shape[1]).index_copy(0, self._own, rows)

    def _whole(self, norm: Norm) -> Sparse:
        blocks = []
        for t, (drawn, topology) in enumerate(zip(self._window.drawn, self._window.topologies, strict=True)):
            row_ptr, col, weight = topology.matrix(norm, drawn.position, drawn.hops[self._hop])
            blocks.append((row_ptr, self._column[col + self._window.cell_ptr[t]], weight))
        return Sparse.stacked(blocks, len(self._read), dtype=self.dtype, device=self.device)


class Gathering(Timing):
    """The time stage of targets: their rows go to whoever has their newest cell, and what comes of it comes back."""

    def __init__(self, cells: SampledCells, targets: Targets, comm: Comm) -> None:
        self._cells = cells
        self._shuffling = Shuffling(comm, targets.present, targets.owners, targets.home, cells.device)

    def run(self, encoder: TimeEncoder, x: Columns, state: Any | None) -> tuple[Tensor, Any, list[Tensor]]:
        rows = self._cells.target_rows
        out, state, tokens = self._shuffling.run(encoder, tuple(picked(each, rows) for each in x), state)
        whole = out.new_zeros(self._cells.num_cells, out.shape[1]).index_copy(0, rows, out)
        return whole, state, tokens


def _with_loops(drawn: Drawn, values: FloatArray | None, loops: FloatArray) -> Csr:
    """The matrix with one more entry, first in each row, that is not 0; without values its loops take the place of
    those it has."""
    col, reader = drawn.col, drawn.reader
    if values is None:
        other = col != reader
        col, reader = col[other], reader[other]
    added = np.flatnonzero(loops)
    degree = np.bincount(reader, minlength=len(loops))
    degree[added] += 1
    row_ptr = np.concatenate(([0], np.cumsum(degree)))
    first = np.zeros(row_ptr[-1], bool)
    first[row_ptr[added]] = True
    new_col = np.empty(row_ptr[-1], np.int32)
    new_col[first], new_col[~first] = added, col
    if values is None:
        return row_ptr, new_col, None
    new_values = np.empty(row_ptr[-1])
    new_values[first], new_values[~first] = loops[added], values
    return row_ptr, new_col, new_values
