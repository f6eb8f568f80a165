"""What one rank keeps at hand of some snapshots: the cells of its nodes, and all that those read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from strobe.errors import InputError
from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.csr import IntArray, distinct, row_pointers, select_rows
from strobe.ops.normalise import Csr, Norm, normalise
from strobe.ops.sparse import Sparse, spmm
from strobe.ops.surroundings import Blocks, Rows, Surroundings, surroundings

Inputs = dict[tuple[Norm, ...], Tensor]
"""Features and aggregates of them, by the norms of the products that lead there."""

_FAR = 255
_POSITION_BYTES = 4
"""Of a node, a column, a row pointer."""


@dataclass(frozen=True)
class Reading:
    """What a model reads of a graph: aggregates of the inputs, which are computed once a run (the norms of each, in
    order); matrices for products with anything else; and how far those reach, one after the other. ``steps``: whether
    it goes through snapshots one by one."""

    inputs: tuple[tuple[Norm, ...], ...] = ()
    norms: tuple[Norm, ...] = ()
    hops: int = 0
    steps: bool = False


@dataclass(frozen=True, eq=False)
class Near:
    """The cells of a snapshot that a rank keeps: where they stand in it, ascending, and how many products away the
    nearest of the rank's own nodes is."""

    position: IntArray
    distance: npt.NDArray[np.uint8]


def near(snapshot: Snapshot, own: npt.NDArray[np.bool_], hops: int, *, out: bool) -> Near:
    """The cells of some nodes and what they read within so many products, ``out``: of which some go along the arcs."""
    distance = np.where(own[snapshot.nodes], 0, _FAR).astype(np.uint8)
    if hops:
        read, reader = snapshot.arcs()
        for hop in range(hops):
            found = [read[distance[reader] == hop]] + ([reader[distance[read] == hop]] if out else [])
            for cells in found:
                distance[cells[distance[cells] == _FAR]] = hop + 1
    position = np.flatnonzero(distance != _FAR)
    return Near(position, distance[position])


class Cache:
    """Cells of snapshots ``times`` that stand at hand, numbered t-major, with what a model reads of them.

    A cell that is as many products away as the model reads is only read: what it would read itself changes none of
    the rank's nodes, and its rows are empty. Aggregates of the inputs and the entries of matrices are those of whole
    snapshots, so that the rank's own cells get what they would get there.
    """

    def __init__(
        self, graph: DynamicGraph, times: range, own: npt.NDArray[np.bool_], reading: Reading, dtype: torch.dtype
    ) -> None:
        if graph.features is None:
            raise InputError("the graph has no features: give it some with graph.with_features(Degrees(log=True))")
        self.graph, self.times, self.reading, self.dtype = graph, times, reading, dtype
        self.reads_out = graph.directed and "mean_out" in reading.norms and len(reading.norms) > 1
        both = graph.directed and "mean_out" in reading.norms
        self._near = [near(graph[t], own, reading.hops, out=both) for t in times]
        ids = [graph[t].nodes[kept.position] for t, kept in zip(times, self._near, strict=True)]
        self.nodes = distinct(np.concatenate([np.empty(0, np.int64), *ids]).astype(np.int64))
        """The nodes whose cells these are, ascending; the cache numbers them in this order."""
        self._node = [np.searchsorted(self.nodes, each).astype(np.int32) for each in ids]
        self.cell_ptr = np.concatenate(([0], np.cumsum([len(each) for each in ids], dtype=np.int64)))

    @property
    def num_cells(self) -> int:
        return int(self.cell_ptr[-1])

    @property
    def num_nodes(self) -> int:
        return len(self.nodes)

    def numbers(self, nodes: IntArray) -> IntArray:
        """The numbers of some of the graph's nodes here; those that are never present have none."""
        at = np.minimum(np.searchsorted(self.nodes, nodes), max(self.num_nodes - 1, 0))
        there = self.nodes[at] == nodes if self.num_nodes else np.zeros(len(nodes), bool)
        numbers: IntArray = at[there]
        return numbers

    def predicted_bytes(self) -> int:
        """What all of it takes, known before it is built; a little less where cells have loops already."""
        assert self.graph.features is not None
        item = torch.empty(0, dtype=self.dtype).element_size()
        columns = self.graph.features.shape[0] * (1 + len(self.reading.inputs))
        cells = self.num_cells * (_POSITION_BYTES + columns * item)
        rows = (self.num_cells + len(self.times)) * _POSITION_BYTES * len(self.reading.norms)
        entries = 0
        for t, kept in zip(self.times, self._near, strict=True):
            snapshot, inner = self.graph[t], kept.position[kept.distance < self.reading.hops]
            for norm in self.reading.norms:
                degree = snapshot.out_degree if norm == "mean_out" else snapshot.in_degree
                number = int(degree[inner].sum()) + (len(inner) if norm in ("gcn", "loops") else 0)
                plain = norm == "loops" or (norm == "sum" and not self.graph.weighted)
                entries += number * (_POSITION_BYTES + (0 if plain else item))
        return cells + rows + entries

    def build(self) -> Cache:
        """Reads all snapshots once. Gives itself."""
        _ = self.x, self.blocks
        return self

    @property
    def num_bytes(self) -> int:
        """What it takes, now that it is built."""
        tensors = sum(each.numel() * each.element_size() for each in (self.x, *self.aggregates.values()))
        arrays = [array for rows in self.rows.values() for array in (rows.row_ptr, rows.col, rows.weight)]
        return tensors + self.node.nbytes + sum(0 if array is None else array.nbytes for array in arrays)

    @cached_property
    def node(self) -> IntArray:
        """The node of every cell, as numbered here, [c]."""
        return np.concatenate([np.empty(0, np.int32), *self._node])

    @property
    def x(self) -> Tensor:
        """Features, [c, F]."""
        return self._inputs[()]

    @property
    def aggregates(self) -> Inputs:
        """Aggregates of the features, [c, F] each, by the norms of their products."""
        return {key: rows for key, rows in self._inputs.items() if key}

    @cached_property
    def _inputs(self) -> Inputs:
        assert self.graph.features is not None
        shape = self.num_cells, self.graph.features.shape[0]
        found = {key: torch.empty(shape, dtype=self.dtype) for key in ((), *self.reading.inputs)}
        for k, (t, kept) in enumerate(zip(self.times, self._near, strict=True)):
            snapshot, here = self.graph[t], slice(int(self.cell_ptr[k]), int(self.cell_ptr[k + 1]))
            position = torch.from_numpy(kept.position)
            whole: Inputs = {(): torch.from_numpy(np.array(snapshot.x)).to(self.dtype)}
            for key in sorted(found, key=len):
                rows = _walked(snapshot, key, whole, self.dtype)
                found[key][here] = rows[position]
        return found

    @cached_property
    def rows(self) -> dict[Norm, Rows]:
        """The matrices, each snapshot's by the cells that are at hand."""
        return {norm: self._rows(norm) for norm in self.reading.norms}

    @cached_property
    def blocks(self) -> Blocks:
        """What is followed from some nodes to all that they read."""
        inward: list[Norm] = sorted(self.rows, key=lambda norm: norm == "mean_out")  # that one last
        nothing = Rows(
            np.zeros(len(self.times) + 1, np.int64),
            np.zeros(self.num_cells + len(self.times), np.int32),
            np.empty(0, np.int32),
        )
        reads = self.rows[inward[0]] if inward else nothing
        out = self.rows["mean_out"] if self.reads_out else None
        return Blocks(self.num_nodes, self.cell_ptr, reads, self.node, out)

    def around(self, times: range, targets: IntArray) -> Surroundings:
        """The cells of some nodes, as numbered here, in some of the snapshots, and all that they read."""
        at = range(times.start - self.times.start, times.stop - self.times.start)
        return surroundings(self.blocks, at, targets, self.reading.hops, out=self.reads_out)

    def _rows(self, norm: Norm) -> Rows:
        blocks = []
        for t, kept in zip(self.times, self._near, strict=True):
            snapshot = self.graph[t]
            column = np.full(snapshot.num_nodes, -1, np.int64)
            column[kept.position] = np.arange(len(kept.position))
            matrix = normalise(norm, snapshot.row_ptr, snapshot.col, snapshot.weight)
            inner = kept.distance < self.reading.hops
            blocks.append(_spread(select_rows(matrix, kept.position[inner], column), inner))
        return _joined(blocks, self.dtype)


def _walked(snapshot: Snapshot, key: tuple[Norm, ...], known: Inputs, dtype: torch.dtype) -> Tensor:
    """The features of a whole snapshot after some products; all that was found on the way is known afterwards."""
    if key not in known:
        matrix = normalise(key[-1], snapshot.row_ptr, snapshot.col, snapshot.weight)
        before = _walked(snapshot, key[:-1], known, dtype)
        known[key] = spmm(Sparse.block_diagonal([matrix], dtype=dtype), before)
    return known[key]


def _spread(matrix: Csr, filled: npt.NDArray[np.bool_]) -> Csr:
    """The rows of a matrix as those of more cells, of which the others have empty ones."""
    row_ptr, col, weight = matrix
    degree = np.zeros(len(filled), np.int64)
    degree[filled] = np.diff(row_ptr)
    return row_pointers(degree), col, weight


def _joined(blocks: Sequence[Csr], dtype: torch.dtype) -> Rows:
    arcs: Iterable[int] = (len(col) for _, col, _ in blocks)
    weights = [weight for _, _, weight in blocks if weight is not None]
    kind = torch.empty(0, dtype=dtype).numpy().dtype
    return Rows(
        np.concatenate(([0], np.cumsum(list(arcs), dtype=np.int64))),
        np.concatenate([np.empty(0, np.int32), *(row_ptr for row_ptr, _, _ in blocks)]).astype(np.int32),
        np.concatenate([np.empty(0, np.int32), *(col for _, col, _ in blocks)]).astype(np.int32),
        np.concatenate(weights).astype(kind) if weights else None,
    )
