"""Windows of seed nodes and neighbors sampled for them, with features fetched from their owners."""

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
from strobe.exchange import TimeEncoder, TimeStage
from strobe.exchange.base import TimeInputs
from strobe.exchange.shuffle import ShuffleTimeStage
from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.dense.rows import select_rows
from strobe.ops.sparse.csr import Csr, FloatArray, IntArray, expand_rows
from strobe.ops.sparse.normalize import Norm, safe_reciprocal
from strobe.ops.sparse.sampling import Sample, SampledArcs, sample_neighbors
from strobe.ops.sparse.spmm import Sparse, spmm
from strobe.ops.time.sequences import Sequences
from strobe.view.data.window import WindowData


class Topology:
    """The arcs of a snapshot, stored as long as windows sample from it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.nodes, self.row_ptr, self.col, self.weight = (
            snapshot.nodes,
            snapshot.row_ptr,
            snapshot.col,
            snapshot.weight,
        )

    def sample(self, seeds: IntArray, fanouts: Sequence[int], key: int) -> Sample:
        """Sample the neighborhood of seed cells."""
        return sample_neighbors(self.row_ptr, self.col, self.nodes, seeds, fanouts, key)

    def positions(self, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """Indices of the present ones of ``nodes`` (ascending), and the positions of their cells."""
        at = np.searchsorted(self.nodes, nodes)
        at[at == len(self.nodes)] = 0
        present = np.flatnonzero(self.nodes[at] == nodes) if len(self.nodes) else np.empty(0, np.int64)
        return present, at[present]

    def matrix(self, norm: Norm, cells: IntArray, sampled: SampledArcs) -> Csr:
        """The matrix of sampled arcs: rows are the cells that arcs were sampled for, columns all sampled cells.

        An arc has its weight in the whole snapshot times the number of arcs it stands for: products are unbiased.
        """
        if norm == "mean_out":
            raise OptionError(
                "the model aggregates along outgoing arcs, but sampling follows incoming ones: use batching windows"
            )
        if norm == "loops":
            return _add_loops(sampled, None, np.ones(len(sampled.degree)))
        values = np.ones(len(sampled.arc)) if self.weight is None else self.weight[sampled.arc].astype(np.float64)
        if sampled.scale is not None:
            values *= sampled.scale
        if norm == "sum":
            plain = self.weight is None and sampled.scale is None
            return sampled.row_ptr, sampled.col, None if plain else values
        if norm == "mean":
            readers = cells[: len(sampled.degree)]
            return sampled.row_ptr, sampled.col, values * safe_reciprocal(self._sums[readers])[sampled.reader]
        if norm == "sym":
            root = safe_reciprocal(np.sqrt(self._sums_out[cells]))
            values = values * root[sampled.reader] * root[sampled.col] * (sampled.reader != sampled.col)
            return sampled.row_ptr, sampled.col, values
        missing = ~self._has_loop[cells]
        root = safe_reciprocal(np.sqrt(self._sums[cells] + missing))
        loops = np.where(missing, root * root, 0.0)[: len(sampled.degree)]
        return _add_loops(sampled, values * root[sampled.reader] * root[sampled.col], loops)

    @cached_property
    def _sums(self) -> FloatArray:
        """Sum of absolute weights of each cell's incoming arcs."""
        if self.weight is None:
            return np.diff(self.row_ptr).astype(np.float64)
        weights = np.abs(self.weight).astype(np.float64)
        return np.bincount(expand_rows(self.row_ptr), weights, len(self.nodes)).astype(np.float64)

    @cached_property
    def _sums_out(self) -> FloatArray:
        """Sum of absolute weights of each cell's outgoing arcs, self-loops excepted."""
        weights = (expand_rows(self.row_ptr) != self.col).astype(np.float64)
        if self.weight is not None:
            weights *= np.abs(self.weight)
        return np.bincount(self.col, weights, len(self.nodes)).astype(np.float64)

    @cached_property
    def _has_loop(self) -> Any:
        rows = expand_rows(self.row_ptr)
        has_loop = np.zeros(len(self.nodes), bool)
        has_loop[rows[rows == self.col]] = True
        return has_loop


@dataclass(frozen=True, eq=False)
class SeedNodes:
    """The seed nodes of a batch on all ranks, numbered from 0, in every snapshot of its window."""

    present: Sequence[IntArray]  # present seed nodes of each snapshot
    owners: Sequence[IntArray]  # owners of their cells
    home: IntArray  # [B] owner of each seed node's newest cell


class SampledData(WindowData):
    """The cells of a rank's seed nodes and their sampled neighbors, seed nodes first in each snapshot.

    Of n sparse products in a row, the k-th is computed for the cells within n - k hops of the seed nodes. The time
    stage runs on seed nodes only, each on the rank of its newest cell. Rows that a stage does not compute are 0.
    """

    splits_snapshots = True
    from_graph = False

    def __init__(
        self,
        graph: DynamicGraph,
        x: Tensor,
        samples: Sequence[Sample],
        topologies: Sequence[Topology],
        seeds: SeedNodes,
        *,
        comm: Comm,
    ) -> None:
        super().__init__(graph, dtype=x.dtype, device=x.device)
        self.samples, self.topologies, self._seeds, self._comm = samples, topologies, seeds, comm
        self.cell_ptr = (0, *np.cumsum([len(each.position) for each in samples], dtype=np.int64).tolist())
        self._x = x
        self._hop_data: dict[int, HopData] = {}

    @cached_property
    def x(self) -> Tensor:
        self.register_input((), self._x)
        return self._x

    @property
    def comm(self) -> Comm:
        return self._comm

    @cached_property
    def num_arcs(self) -> int:
        return sum(each.num_arcs for each in self.samples)

    @cached_property
    def seed_rows(self) -> Tensor:
        """Rows of this rank's seed nodes."""
        return torch.from_numpy(self.first_rows(0)).to(self.device)

    def first_rows(self, hop: int) -> IntArray:
        """Rows of the cells within ``hop`` hops of the seed nodes."""
        starts = self.cell_ptr[:-1]
        rows = [np.arange(start, start + each.sizes[hop]) for start, each in zip(starts, self.samples, strict=True)]
        return np.concatenate([np.empty(0, np.int64), *rows])

    @property
    def sequences(self) -> Sequences:
        raise OptionError(
            "the model's convolutions read node states, which sampled cells do not have: use a model that convolves "
            "before its time stage, or batching windows"
        )

    def time_stage(self, encoder: TimeEncoder) -> TimeStage:
        del encoder
        return self._seed_stage

    @cached_property
    def _seed_stage(self) -> SeedTimeStage:
        return SeedTimeStage(self, self._seeds, self._comm)

    @cached_property
    def single(self) -> tuple[WindowData, ...]:
        raise OptionError(
            "the model steps through snapshots, but sampled cells are computed together: use batching windows"
        )

    def save_latest(self, saved: Tensor | None, rows: Tensor) -> None:
        """Batches do not follow each other."""
        del saved, rows

    def hop_data(self, number: int) -> HopData:
        hops = len(self.samples[0].hops)
        if number >= hops:
            raise OptionError(f"cells were sampled for {hops} sparse products in a row; the model has more")
        if number not in self._hop_data:
            self._hop_data[number] = HopData(self, hops - 1 - number)
        return self._hop_data[number]


class HopData(WindowData):
    """The cells within a hop of the seed nodes as the data of a convolution: own rows, then rows that are only read."""

    splits_snapshots = True
    from_graph = False

    def __init__(self, window: SampledData, hop: int) -> None:
        super().__init__(window.graph, dtype=window.dtype, device=window.device)
        self._window, self._hop = window, hop
        own, all_read = window.first_rows(hop), window.first_rows(hop + 1)
        self.cell_ptr = (0, *np.cumsum([each.sizes[hop] for each in window.samples], dtype=np.int64).tolist())
        only_read = np.setdiff1d(all_read, own, assume_unique=True)
        reads = np.concatenate([own, only_read])
        self._column = np.full(window.num_cells, -1, np.int64)
        self._column[reads] = np.arange(len(reads))
        self._own, self._read = (torch.from_numpy(rows).to(window.device) for rows in (own, reads))

    def hop_data(self, number: int) -> None:
        """Refuse a second product of a convolution: its rows were not sampled."""
        if number:
            raise OptionError("sampled batches allow one sparse product per convolution; this one has more")

    def aggregate(self, x: Tensor, norm: Norm) -> Tensor:
        """Multiply rows of the window; cells outside this hop get 0. Aggregates of inputs are inputs, too."""
        out = self.scatter_rows(spmm(self.matrix(norm), self.load_rows(x)))
        if self._window.is_input(x):
            self._window.register_input((*self._window.input_key(x), norm), out)
        return out

    def aggregate_input(self, x: Tensor, norm: Norm) -> Tensor:
        return spmm(self.matrix(norm), x)

    def load_rows(self, x: Tensor) -> Tensor:
        """Select the rows that these cells read."""
        rows = x.index_select(0, self._read)
        self.x = self.pulled_x = rows if x is self._window.x else rows[:0]
        if self._window.is_input(x):
            self.register_input(self._window.input_key(x), rows)
        return rows

    def scatter_rows(self, rows: Tensor) -> Tensor:
        """Rows of these cells as rows of the window; the others are 0."""
        return rows.new_zeros(self._window.num_cells, rows.shape[1]).index_copy(0, self._own, rows)

    def _full_matrix(self, norm: Norm) -> Sparse:
        blocks = []
        for t, (sample, topology) in enumerate(zip(self._window.samples, self._window.topologies, strict=True)):
            row_ptr, col, weight = topology.matrix(norm, sample.position, sample.hops[self._hop])
            blocks.append((row_ptr, self._column[col + self._window.cell_ptr[t]], weight))
        return Sparse.vstack(blocks, len(self._read), dtype=self.dtype, device=self.device)


class SeedTimeStage(TimeStage):
    """The time stage of seed nodes: rows are shuffled to the owner of the newest cell, and outputs back."""

    def __init__(self, data: SampledData, seeds: SeedNodes, comm: Comm) -> None:
        self._data = data
        self._shuffle = ShuffleTimeStage(comm, seeds.present, seeds.owners, seeds.home, data.device)

    def run(self, encoder: TimeEncoder, x: TimeInputs, state: Any | None) -> tuple[Tensor, Any, list[Tensor]]:
        rows = self._data.seed_rows
        out, state, tokens = self._shuffle.run(encoder, tuple(select_rows(each, rows) for each in x), state)
        whole = out.new_zeros(self._data.num_cells, out.shape[1]).index_copy(0, rows, out)
        return whole, state, tokens


def _add_loops(sampled: SampledArcs, values: FloatArray | None, loops: FloatArray) -> Csr:
    """Add nonzero self loops as the first entry of each row; without values they replace existing loops."""
    col, reader = sampled.col, sampled.reader
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
