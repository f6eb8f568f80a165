"""K-hop caches and subgraphs cut out of them.

`KHopCache` stores the cells of a rank's nodes and their k-hop neighborhoods over some snapshots; `SubgraphData` is a
window of seed nodes and the cells they read, taken from the cache.
"""

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
from strobe.ops.sparse.csr import Csr, IntArray, distinct, row_pointers, select_csr_rows
from strobe.ops.sparse.khop import ArcRows, KHopSubgraph, SnapshotCsr, khop_subgraph, select_arc_rows
from strobe.ops.sparse.normalize import Norm, normalize
from strobe.ops.sparse.spmm import Sparse, spmm
from strobe.ops.time.sequences import Sequences
from strobe.view.data.window import WindowData

Inputs = dict[tuple[Norm, ...], Tensor]
"""Features and their aggregates, by the norms of the products."""

_UNREACHED = 255
_POSITION_BYTES = 4
"""Bytes of a node id, a column or a row pointer."""


@dataclass(frozen=True)
class ModelReads:
    """What a model reads of a graph.

    ``inputs``: aggregates of the inputs, each as the norms of its products; they are computed once a run. ``norms``:
    matrices of the other products; ``hops``: their number in a row. ``steps``: whether it steps through snapshots.
    """

    inputs: tuple[tuple[Norm, ...], ...] = ()
    norms: tuple[Norm, ...] = ()
    hops: int = 0
    steps: bool = False


@dataclass(frozen=True, eq=False)
class KHopCells:
    """Cached cells of a snapshot: positions, ascending, and distances to the nearest of the rank's nodes in hops."""

    position: IntArray
    distance: npt.NDArray[np.uint8]


def find_khop_cells(snapshot: Snapshot, own: npt.NDArray[np.bool_], hops: int, *, out: bool) -> KHopCells:
    """The cells of nodes ``own`` and their neighborhood of ``hops`` hops; ``out``: also along outgoing arcs."""
    distance = np.where(own[snapshot.nodes], 0, _UNREACHED).astype(np.uint8)
    if hops:
        read, reader = snapshot.arcs()
        for hop in range(hops):
            neighbors = [read[distance[reader] == hop]] + ([reader[distance[read] == hop]] if out else [])
            for cells in neighbors:
                distance[cells[distance[cells] == _UNREACHED]] = hop + 1
    position = np.flatnonzero(distance != _UNREACHED)
    return KHopCells(position, distance[position])


class KHopCache:
    """Cached cells of snapshots ``times``, numbered t-major, with the features and matrices that a model reads.

    Cells at the largest distance are only read: their matrix rows are empty. Aggregates of the inputs and entries of
    matrices are those of whole snapshots, so that the rank's own cells get the same results as there.
    """

    def __init__(
        self, graph: DynamicGraph, times: range, own: npt.NDArray[np.bool_], model_reads: ModelReads, dtype: torch.dtype
    ) -> None:
        if graph.features is None:
            raise InputError("the graph has no features: give it some with graph.with_features(Degrees(log=True))")
        self.graph, self.times, self.model_reads, self.dtype = graph, times, model_reads, dtype
        self.reads_out = graph.directed and "mean_out" in model_reads.norms and len(model_reads.norms) > 1
        both = graph.directed and "mean_out" in model_reads.norms
        self._khop_cells = [find_khop_cells(graph[t], own, model_reads.hops, out=both) for t in times]
        ids = [graph[t].nodes[cells.position] for t, cells in zip(times, self._khop_cells, strict=True)]
        self.nodes = distinct(np.concatenate([np.empty(0, np.int64), *ids]).astype(np.int64))
        """Cached nodes, ascending; local ids number them in this order."""
        self._node = [np.searchsorted(self.nodes, each).astype(np.int32) for each in ids]
        self.cell_ptr = np.concatenate(([0], np.cumsum([len(each) for each in ids], dtype=np.int64)))

    @property
    def num_cells(self) -> int:
        return int(self.cell_ptr[-1])

    @property
    def num_nodes(self) -> int:
        return len(self.nodes)

    def local_ids(self, nodes: IntArray) -> IntArray:
        """Local ids of graph nodes; nodes that are not cached are dropped."""
        at = np.minimum(np.searchsorted(self.nodes, nodes), max(self.num_nodes - 1, 0))
        cached = self.nodes[at] == nodes if self.num_nodes else np.zeros(len(nodes), bool)
        local_ids: IntArray = at[cached]
        return local_ids

    def predicted_bytes(self) -> int:
        """Bytes of the cache before it is built; slightly too high if cells have self loops."""
        assert self.graph.features is not None
        item = torch.empty(0, dtype=self.dtype).element_size()
        columns = self.graph.features.shape[0] * (1 + len(self.model_reads.inputs))
        cell_bytes = self.num_cells * (_POSITION_BYTES + columns * item)
        rows = (self.num_cells + len(self.times)) * _POSITION_BYTES * len(self.model_reads.norms)
        entries = 0
        for t, cells in zip(self.times, self._khop_cells, strict=True):
            snapshot, inner = self.graph[t], cells.position[cells.distance < self.model_reads.hops]
            for norm in self.model_reads.norms:
                degree = snapshot.out_degree if norm == "mean_out" else snapshot.in_degree
                number = int(degree[inner].sum()) + (len(inner) if norm in ("gcn", "loops") else 0)
                plain = norm == "loops" or (norm == "sum" and not self.graph.weighted)
                entries += number * (_POSITION_BYTES + (0 if plain else item))
        return cell_bytes + rows + entries

    def build(self) -> KHopCache:
        """Build features and matrices. Returns self."""
        _ = self.inputs, self.blocks
        return self

    @property
    def num_bytes(self) -> int:
        """Bytes of the built cache."""
        tensors = sum(each.numel() * each.element_size() for each in self.inputs.values())
        arrays = [array for rows in self.rows.values() for array in (rows.row_ptr, rows.col, rows.weight)]
        return tensors + self.node.nbytes + sum(0 if array is None else array.nbytes for array in arrays)

    @cached_property
    def node(self) -> IntArray:
        """Local node id of every cell, [c]."""
        return np.concatenate([np.empty(0, np.int32), *self._node])

    @cached_property
    def inputs(self) -> Inputs:
        """Features and their aggregates, [c, F] each."""
        assert self.graph.features is not None
        shape = self.num_cells, self.graph.features.shape[0]
        inputs = {key: torch.empty(shape, dtype=self.dtype) for key in ((), *self.model_reads.inputs)}
        for k, (t, cells) in enumerate(zip(self.times, self._khop_cells, strict=True)):
            snapshot, rows_t = self.graph[t], slice(int(self.cell_ptr[k]), int(self.cell_ptr[k + 1]))
            position = torch.from_numpy(cells.position)
            whole: Inputs = {(): torch.from_numpy(np.array(snapshot.x)).to(self.dtype)}
            for key in sorted(inputs, key=len):
                rows = _aggregate_snapshot(snapshot, key, whole, self.dtype)
                inputs[key][rows_t] = rows[position]
        return inputs

    @cached_property
    def rows(self) -> dict[Norm, ArcRows]:
        """Rows of cached cells in each snapshot's matrix, by norm."""
        return {norm: self._build_rows(norm) for norm in self.model_reads.norms}

    @cached_property
    def blocks(self) -> SnapshotCsr:
        """The adjacency that k-hop search follows."""
        inward: list[Norm] = sorted(self.rows, key=lambda norm: norm == "mean_out")
        empty = ArcRows(
            np.zeros(len(self.times) + 1, np.int64),
            np.zeros(self.num_cells + len(self.times), np.int32),
            np.empty(0, np.int32),
        )
        reads = self.rows[inward[0]] if inward else empty
        out = self.rows["mean_out"] if self.reads_out else None
        return SnapshotCsr(self.num_nodes, self.cell_ptr, reads, self.node, out)

    def khop_subgraph(self, times: range, seed_nodes: IntArray) -> KHopSubgraph:
        """The cells of seed nodes (local ids) in some snapshots, with their k-hop neighborhood."""
        at = range(times.start - self.times.start, times.stop - self.times.start)
        return khop_subgraph(self.blocks, at, seed_nodes, self.model_reads.hops, out=self.reads_out)

    def _build_rows(self, norm: Norm) -> ArcRows:
        blocks = []
        for t, cells in zip(self.times, self._khop_cells, strict=True):
            snapshot = self.graph[t]
            column = np.full(snapshot.num_nodes, -1, np.int64)
            column[cells.position] = np.arange(len(cells.position))
            matrix = normalize(norm, snapshot.row_ptr, snapshot.col, snapshot.weight)
            inner = cells.distance < self.model_reads.hops
            blocks.append(_pad_rows(select_csr_rows(matrix, cells.position[inner], column), inner))
        return _concat_blocks(blocks, self.dtype)


def _aggregate_snapshot(snapshot: Snapshot, key: tuple[Norm, ...], known: Inputs, dtype: torch.dtype) -> Tensor:
    """Aggregate the features of a whole snapshot by the norms ``key``; intermediate results are added to ``known``."""
    if key not in known:
        matrix = normalize(key[-1], snapshot.row_ptr, snapshot.col, snapshot.weight)
        before = _aggregate_snapshot(snapshot, key[:-1], known, dtype)
        known[key] = spmm(Sparse.block_diagonal([matrix], dtype=dtype), before)
    return known[key]


def _pad_rows(matrix: Csr, mask: npt.NDArray[np.bool_]) -> Csr:
    """Insert empty rows where the mask is False."""
    row_ptr, col, weight = matrix
    degree = np.zeros(len(mask), np.int64)
    degree[mask] = np.diff(row_ptr)
    return row_pointers(degree), col, weight


def _concat_blocks(blocks: Sequence[Csr], dtype: torch.dtype) -> ArcRows:
    arcs: Iterable[int] = (len(col) for _, col, _ in blocks)
    weights = [weight for _, _, weight in blocks if weight is not None]
    kind = torch.empty(0, dtype=dtype).numpy().dtype
    return ArcRows(
        np.concatenate(([0], np.cumsum(list(arcs), dtype=np.int64))),
        np.concatenate([np.empty(0, np.int32), *(row_ptr for row_ptr, _, _ in blocks)]).astype(np.int32),
        np.concatenate([np.empty(0, np.int32), *(col for _, col, _ in blocks)]).astype(np.int32),
        np.concatenate(weights).astype(kind) if weights else None,
    )


class SubgraphData(WindowData):
    """Seed nodes and the cells they read, cut out of a k-hop cache without communication.

    States have one slot per node of the subgraph; with ``continues_state`` one per node of the cache, so that
    consecutive windows agree on slots.
    """

    from_graph = False

    def __init__(
        self,
        cache: KHopCache,
        times: range,
        subgraph: KHopSubgraph,
        device: torch.device,
        *,
        continues_state: bool = False,
    ) -> None:
        super().__init__(cache.graph[times.start : times.stop], dtype=cache.dtype, device=device)
        self.cache, self.times, self.subgraph, self.continues_state = cache, times, subgraph, continues_state
        self.cell_ptr = tuple(subgraph.blocks.cell_ptr.tolist())
        self.splits_snapshots = True

    @cached_property
    def seed_rows(self) -> Tensor:
        """Rows of the seed nodes, ascending."""
        if not self.cache.model_reads.hops:
            return torch.arange(self.num_cells)
        return torch.from_numpy(np.flatnonzero(self.subgraph.distance == 0))

    @cached_property
    def num_arcs(self) -> int:
        return self.subgraph.blocks.num_arcs if self.cache.rows else 0

    def _compute_input(self, key: tuple[Norm, ...]) -> Tensor:
        return self.cache.inputs[key].index_select(0, self.cache_index).to(self.device)

    @cached_property
    def sequences(self) -> Sequences:
        present = [self._slot[start:stop] for start, stop in zip(self.cell_ptr, self.cell_ptr[1:], strict=False)]
        return Sequences.of(present, self._num_slots, self.device)

    @cached_property
    def single(self) -> tuple[WindowData, ...]:
        return (self,) if self.num_snapshots == 1 else tuple(_SnapshotData(self, t) for t in range(self.num_snapshots))

    @cached_property
    def cache_index(self) -> Tensor:
        """Index of each cell in the cache, [C]."""
        return torch.from_numpy(self.subgraph.cell)

    @cached_property
    def _slots(self) -> tuple[IntArray, int]:
        assert self.subgraph.blocks.node is not None
        node, num_nodes = self.subgraph.blocks.node, self.cache.num_nodes
        if self.continues_state:
            return node, num_nodes
        present = np.zeros(num_nodes, bool)
        present[node] = True
        return (np.cumsum(present, dtype=np.int64) - 1)[node], int(present.sum())

    @property
    def _slot(self) -> IntArray:
        return self._slots[0]

    @property
    def _num_slots(self) -> int:
        return self._slots[1]

    def _full_matrix(self, norm: Norm) -> Sparse:
        blocks = [self._block(t, norm) for t in range(self.num_snapshots)]
        return Sparse.block_diagonal(blocks, dtype=self.dtype, device=self.device)

    def _block(self, t: int, norm: Norm) -> Csr:
        rows = self._matrix_rows(norm)
        first, last = int(rows.arc_ptr[t]), int(rows.arc_ptr[t + 1])
        row_ptr = rows.row_ptr[self.cell_ptr[t] + t : self.cell_ptr[t + 1] + t + 1]
        return row_ptr, rows.col[first:last], None if rows.weight is None else rows.weight[first:last]

    def _matrix_rows(self, norm: Norm) -> ArcRows:
        blocks, whole = self.subgraph.blocks, self.cache.rows[norm]
        if whole is self.cache.blocks.reads:
            return blocks.reads
        if whole is self.cache.blocks.out:
            assert blocks.out is not None
            return blocks.out
        if norm not in self._extra_rows:
            self._extra_rows[norm] = select_arc_rows(self.subgraph, whole, self.cache.model_reads.hops)
        return self._extra_rows[norm]

    @cached_property
    def _extra_rows(self) -> dict[Norm, ArcRows]:
        return {}


class _SnapshotData(WindowData):
    """One snapshot of a subgraph."""

    from_graph = False

    def __init__(self, window: SubgraphData, t: int) -> None:
        super().__init__(window.graph[t : t + 1], dtype=window.dtype, device=window.device)
        self._window, self._t = window, t
        self.cell_ptr = (0, window.cell_ptr[t + 1] - window.cell_ptr[t])

    def _compute_input(self, key: tuple[Norm, ...]) -> Tensor:
        return self._window._input(key)[self._window.rows(self._t)]

    @cached_property
    def sequences(self) -> Sequences:
        return Sequences.of([self._window._slot[self._window.rows(self._t)]], self._window._num_slots, self.device)

    def _full_matrix(self, norm: Norm) -> Sparse:
        return Sparse.block_diagonal([self._window._block(self._t, norm)], dtype=self.dtype, device=self.device)
