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
from strobe.ops.normalise import Csr, Norm
from strobe.ops.picked import picked
from strobe.ops.sampling import Sample, sample
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

    def sample(self, targets: IntArray, fanouts: IntArray, key: int) -> Sample:
        """What some of its cells read, drawn by lot."""
        return sample(self.row_ptr, self.col, self.nodes, targets, fanouts, key)

    def positions(self, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """Which of some nodes, ascending, are present, and where their cells are."""
        at = np.searchsorted(self.nodes, nodes)
        at[at == len(self.nodes)] = 0
        there = np.flatnonzero(self.nodes[at] == nodes) if len(self.nodes) else np.empty(0, np.int64)
        return there, at[there]

    def weights(self, norm: Norm, drawn: Sample) -> tuple[FloatArray | None, FloatArray | None]:
        """What arcs that were drawn weigh, and a loop of each cell that the norm adds (0: none; None: at all).

        An arc weighs what it does in the whole snapshot, times the number of arcs that it stands for: on average a cell
        reads what it reads there.
        """
        values = np.ones(len(drawn.arc)) if self.weight is None else self.weight[drawn.arc].astype(np.float64)
        if drawn.share is not None:
            values *= drawn.share
        if norm == "sum":
            return (None if self.weight is None and drawn.share is None else values), None
        if norm == "mean":
            return values * _inverse(self._sums[drawn.position])[drawn.reader], None
        assert norm == "gcn"
        missing = ~self._has_loop[drawn.position]
        root = _inverse(np.sqrt(self._sums[drawn.position] + missing))
        return values * root[drawn.reader] * root[drawn.col], np.where(missing, root * root, 0.0)

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

    Convolutions run level by level: of n products one after the other the first is computed for cells up to n - 1 arcs
    away from targets, the last for targets alone. The time stage has targets alone, each on the rank that has its
    newest cell. Rows of other cells are 0 from then on.
    """

    splits_snapshots = True

    def __init__(
        self,
        graph: DynamicGraph,
        x: Tensor,
        drawn: Sequence[Sample],
        topologies: Sequence[Topology],
        targets: Targets,
        hops: int,
        *,
        comm: Comm,
    ) -> None:
        super().__init__(graph, dtype=x.dtype, device=x.device)
        self.drawn, self._topologies, self._targets, self._comm = drawn, topologies, targets, comm
        self.hops = hops
        self.cell_ptr = (0, *np.cumsum([len(each.position) for each in drawn], dtype=np.int64).tolist())
        self._x = x

    @cached_property
    def x(self) -> Tensor:
        self._remember((), self._x)
        return self._x

    @property
    def comm(self) -> Comm:
        return self._comm

    @cached_property
    def num_arcs(self) -> int:
        return sum(len(each.arc) for each in self.drawn)

    @cached_property
    def distance(self) -> IntArray:
        """Arcs between each cell and the nearest target, [C]."""
        return np.concatenate([np.empty(0, np.uint8), *(each.distance for each in self.drawn)])

    @cached_property
    def target_rows(self) -> Tensor:
        """Rows of this rank's targets."""
        return torch.from_numpy(np.flatnonzero(self.distance == 0)).to(self.device)

    def aggregated_input(self, x: Tensor, norm: Norm) -> Tensor:
        key = (*self._inputs[id(x)], norm)
        if key not in self._aggregates:
            self._remember(key, spmm(self.matrix(norm), x))
        return self._aggregates[key]

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
        """The cells that the n-th of all products is computed for, from 0 on."""
        if number >= self.hops:
            raise OptionError(f"cells were drawn for {self.hops} sparse products one after the other, not for more")
        if number not in self._levels:
            self._levels[number] = Level(self, self.hops - 1 - number)
        return self._levels[number]

    @cached_property
    def _levels(self) -> dict[int, Level]:
        return {}

    def _whole(self, norm: Norm) -> Sparse:
        blocks = [self.block(t, norm) for t in range(self.num_snapshots)]
        return Sparse.block_diagonal(blocks, dtype=self.dtype, device=self.device)

    def block(self, t: int, norm: Norm) -> Csr:
        """The matrix of a snapshot's cells. Those that are only read have nothing in their rows but loops."""
        drawn = self.drawn[t]
        if norm == "mean_out":
            raise OptionError("the model reads along edges, and cells are drawn against them: take batching windows")
        if norm == "loops":
            return _with_loops(drawn, None, np.ones(len(drawn.position)))
        values, loops = self._topologies[t].weights(norm, drawn)
        if loops is None:
            return drawn.row_ptr, drawn.col, values
        return _with_loops(drawn, values, loops)


class Level(Cells):
    """Cells up to a distance from targets, as a convolution sees them: their own rows, then those only read."""

    splits_snapshots = True

    def __init__(self, window: SampledCells, distance: int) -> None:
        super().__init__(window.graph, dtype=window.dtype, device=window.device)
        self._window = window
        own, read = (np.flatnonzero(window.distance <= distance), np.flatnonzero(window.distance == distance + 1))
        self.cell_ptr = tuple(np.searchsorted(own, window.cell_ptr).tolist())
        self.own = torch.from_numpy(own).to(window.device)
        self.reads = torch.from_numpy(np.concatenate([own, read])).to(window.device)
        self._number = np.full(window.num_cells, -1, np.int64)
        self._number[own], self._number[read] = np.arange(len(own)), np.arange(len(own), len(own) + len(read))

    def run(self, stage: Stage, x: Tensor) -> Tensor:
        """What a convolution gives these cells, as rows of the window; those of others are 0."""
        from strobe.view.view import View

        rows = x.index_select(0, self.reads)
        self.x = self.pulled_x = rows if x is self._window.x else rows[:0]
        if self._window.is_input(x):
            self._remember(self._window.key_of(x), rows)
        view = View(self)
        out = view.at_once(stage, rows)
        if view.num_products != 1:
            raise OptionError("a convolution has one sparse product where cells are drawn; this one has more")
        return out if len(out) == len(x) else out.new_zeros(len(x), out.shape[1]).index_copy(0, self.own, out)

    def aggregated_input(self, x: Tensor, norm: Norm) -> Tensor:
        return spmm(self.matrix(norm), x)

    def _whole(self, norm: Norm) -> Sparse:
        matrix = self._window.matrix(norm)
        own, row_ptr = self.own.cpu().numpy(), matrix.row_ptr.cpu().numpy()
        degree = row_ptr[own + 1] - row_ptr[own]
        ptr = np.concatenate(([0], np.cumsum(degree)))
        at = torch.from_numpy(np.arange(ptr[-1]) + np.repeat(row_ptr[own] - ptr[:-1], degree)).to(self.device)
        col = torch.from_numpy(self._number.astype(np.int32)).to(self.device)[matrix.col[at].long()]
        weight = None if matrix.weight is None else matrix.weight[at]
        return Sparse(torch.from_numpy(ptr).to(self.device), col, weight, len(self.reads))


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


def _with_loops(drawn: Sample, values: FloatArray | None, loops: FloatArray) -> Csr:
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


def _inverse(values: FloatArray) -> FloatArray:
    """1 / value, and 0 for 0."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)
