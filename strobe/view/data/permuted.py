"""Snapshots with a rank's cells permuted by chunk, so that the cells a truncated window keeps are a prefix.

A `NodeOrder` is made once per epoch, a `PermutedSnapshot` when a window first reaches the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.sparse.csr import Csr, FloatArray, IntArray, expand_rows, transpose
from strobe.ops.sparse.csr_kernels import reorder_rows, row_ends
from strobe.ops.sparse.normalize import SYMMETRIC_NORMS, Norm, normalize, remove_self_loops
from strobe.ops.sparse.spmm import Sparse
from strobe.view.partition.local import Reads

Inputs = Callable[[int, tuple[Norm, ...]], Tensor]
"""Features of a rank's cells of a snapshot in order of node, or their aggregate by some norms."""


@dataclass(frozen=True, eq=False)
class NodeOrder:
    """The nodes of a rank in order of their chunks; the index of a node in this order is its *slot*.

    ``place`` is the position of each node's chunk among the chunks of all ranks: windows keep leading chunks.
    """

    rank: int
    node_owner: IntArray  # [N]
    place: IntArray  # [N]

    @cached_property
    def nodes(self) -> IntArray:
        """The rank's nodes by slot, [S]."""
        own = np.flatnonzero(self.node_owner == self.rank)
        return own[np.argsort(self.place[own], kind="stable")]

    @cached_property
    def slot(self) -> IntArray:
        """The slot of every node, [N]; -1 for remote nodes."""
        slot = np.full(len(self.node_owner), -1, np.int64)
        slot[self.nodes] = np.arange(len(self.nodes))
        return slot

    @property
    def num_slots(self) -> int:
        return len(self.nodes)

    def num_slots_in(self, num_chunks: int) -> int:
        """Number of slots in the first ``num_chunks`` chunks."""
        return int(np.searchsorted(self._places, num_chunks))

    @cached_property
    def _places(self) -> IntArray:
        return self.place[self.nodes]


@dataclass(frozen=True, eq=False)
class NestedRows:
    """Rows that a rank sends or receives, ordered by ``min_chunks``, the place of the last chunk needed for each."""

    index: IntArray
    min_chunks: IntArray

    def count(self, num_chunks: int) -> int:
        """Number of rows needed with ``num_chunks`` chunks."""
        return int(np.searchsorted(self.min_chunks, num_chunks))


@dataclass(frozen=True, eq=False)
class SnapshotHalo:
    """Rows that a rank sends and receives for a snapshot, by rank.

    ``column`` numbers the received cells of all ranks in order of ``min_chunks``, by position in the snapshot; -1 for
    other cells.
    """

    send: Mapping[int, NestedRows]  # own cells
    receive: Mapping[int, NestedRows]  # columns
    column: IntArray  # [n]
    positions: IntArray  # [columns] in the snapshot
    min_chunks: IntArray  # [columns], ascending

    def count(self, num_chunks: int) -> int:
        return int(np.searchsorted(self.min_chunks, num_chunks))


@dataclass(frozen=True, eq=False)
class ReadWeights:
    """Relative absolute weights of the arcs that a degree counts, in order of chunks: truncation keeps a prefix of each
    row."""

    row_ptr: IntArray  # [r + 1]
    place: IntArray  # [E] of the read cell's chunk, ascending in each row
    weight: FloatArray | None = None  # None: all 1
    by_cell: bool = False
    """Whether ``place`` holds cells instead of chunks, numbered as the rows."""
    without_arcs: float = 1.0
    """The fraction given for rows of which nothing remains."""

    def remaining(self, rows: int, num_chunks: int) -> FloatArray:
        """Fraction of each leading row's weight that remains with ``num_chunks`` chunks."""
        starts, stops = self.row_ptr[:rows], self.row_ptr[1 : rows + 1]
        ends = row_ends(self.row_ptr, self.place, rows, rows if self.by_cell else num_chunks)
        remaining, total = (self._sums(at) - self._sums(starts) for at in (ends, stops))
        fraction: FloatArray = np.full(rows, self.without_arcs)
        return np.divide(remaining, total, out=fraction, where=remaining > 0)

    def _sums(self, at: IntArray) -> FloatArray:
        return at.astype(np.float64) if self.weight is None else self._cumulative[at]

    @cached_property
    def _cumulative(self) -> FloatArray:
        assert self.weight is not None
        return np.concatenate(([0.0], np.cumsum(self.weight)))


@dataclass(frozen=True, eq=False)
class RemoteBlock:
    """The remote columns of a matrix: ``rows`` are the local cells that read them, ascending; ``read_weights`` are the
    weights of the remote cells' own rows."""

    matrix: Sparse
    rows: IntArray
    read_weights: ReadWeights | None


@dataclass(frozen=True, eq=False)
class PermutedSnapshot:
    """A rank's cells of snapshot ``t``, permuted by a `NodeOrder`."""

    graph: DynamicGraph
    t: int
    order: NodeOrder
    inputs: Inputs
    dtype: torch.dtype
    device: torch.device
    _own: dict[Norm, Sparse] = field(default_factory=dict, init=False, repr=False)
    _read_weights: dict[Norm, ReadWeights] = field(default_factory=dict, init=False, repr=False)
    _remote_blocks: dict[Norm, RemoteBlock] = field(default_factory=dict, init=False, repr=False)
    _input_rows: dict[tuple[Norm, ...], Tensor] = field(default_factory=dict, init=False, repr=False)
    _halos: dict[Reads, SnapshotHalo] = field(default_factory=dict, init=False, repr=False)
    _own_counts: dict[int, int] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def snapshot(self) -> Snapshot:
        return self.graph[self.t]

    @cached_property
    def owners(self) -> IntArray:
        """Owner of each cell of the snapshot, [n]."""
        return self.order.node_owner[self.snapshot.nodes]

    @cached_property
    def own(self) -> IntArray:
        """Positions of the rank's cells in the snapshot, by slot, [c]."""
        return np.flatnonzero(self.owners == self.order.rank)[self._permutation]

    @cached_property
    def slots(self) -> IntArray:
        """The slots of the rank's cells, ascending, [c]."""
        return np.flatnonzero(self._slot_cell >= 0)

    @cached_property
    def arc_ptr(self) -> IntArray:
        """Cumulative incoming arcs of the rank's cells, [c + 1]."""
        return np.concatenate(([0], np.cumsum(self.snapshot.in_degree[self.own], dtype=np.int64)))

    def num_own_cells(self, num_chunks: int) -> int:
        """Number of the rank's cells in the first ``num_chunks`` chunks."""
        if num_chunks not in self._own_counts:
            self._own_counts[num_chunks] = int(np.searchsorted(self.slots, self.order.num_slots_in(num_chunks)))
        return self._own_counts[num_chunks]

    def num_cells(self, num_chunks: int) -> int:
        """Number of cells in the first ``num_chunks`` chunks, on all ranks."""
        return int(self._cells_up_to_chunk[min(num_chunks, len(self._cells_up_to_chunk) - 1)])

    def input_rows(self, key: tuple[Norm, ...]) -> Tensor:
        """Features of the rank's cells, or their aggregate by the norms ``key``, [c, F]."""
        if key not in self._input_rows:
            rows = self.inputs(self.t, key)
            self._input_rows[key] = rows.index_select(0, torch.from_numpy(self._permutation).to(rows.device))
        return self._input_rows[key]

    def matrix(self, norm: Norm) -> Sparse:
        """The matrix over local cells, [c, c]."""
        if norm not in self._own:
            self._build(norm)
        return self._own[norm]

    def remote_block(self, norm: Norm) -> RemoteBlock:
        """The remote columns of the matrix."""
        if norm not in self._remote_blocks:
            self._build(norm)
        return self._remote_blocks[norm]

    def remaining_weight(self, norm: Norm, num_chunks: int) -> FloatArray:
        """Fraction of each kept local cell's weight that remains with ``num_chunks`` chunks."""
        return self._read_weights[norm].remaining(self.num_own_cells(num_chunks), num_chunks)

    def remote_remaining_weight(self, norm: Norm, num_chunks: int) -> FloatArray:
        """Fraction of each received cell's weight that remains with ``num_chunks`` chunks."""
        reads: Reads = "out" if norm == "mean_out" else "in"
        read = self._remote_blocks[norm].read_weights
        return np.ones(0) if read is None else read.remaining(self.halo(reads).count(num_chunks), num_chunks)

    def prepare(self, norm: Norm) -> None:
        """Build the matrices of a product and their transposes."""
        if norm not in self._own:
            self._build(norm)
            if not self._own[norm].symmetric:
                _ = self._own[norm].transposed
            _ = self._remote_blocks[norm].matrix.transposed

    def remote_features(self, num_chunks: int) -> Tensor:
        """Features of the remote cells read along incoming arcs, by column."""
        halo = self.halo("in")
        position = halo.positions[: halo.count(num_chunks)]
        assert self.snapshot.x is not None
        return torch.from_numpy(np.asarray(self.snapshot.x)[position]).to(self.device, self.dtype)

    def halo(self, reads: Reads) -> SnapshotHalo:
        """The halo of a sparse product."""
        reads = reads if self.snapshot.directed else "in"
        if reads not in self._halos:
            self._halos[reads] = self._find_halo(reads)
        return self._halos[reads]

    @cached_property
    def _slot_cell(self) -> IntArray:
        """The rank's cell, in order of node, of each slot; -1 if the node is absent."""
        nodes = self.snapshot.nodes[self.owners == self.order.rank]
        at = np.full(self.order.num_slots, -1, np.int64)
        at[self.order.slot[nodes]] = np.arange(len(nodes))
        return at

    @cached_property
    def _permutation(self) -> IntArray:
        return self._slot_cell[self._slot_cell >= 0]

    @cached_property
    def _cells_up_to_chunk(self) -> IntArray:
        return np.concatenate(([0], np.cumsum(np.bincount(self.order.place[self.snapshot.nodes]))))

    def _build(self, norm: Norm) -> None:
        snapshot = self.snapshot
        whole = normalize(norm, snapshot.row_ptr, snapshot.col, snapshot.weight)
        columns = np.full(snapshot.num_nodes, -1, np.int32)
        columns[self.own] = np.arange(len(self.own))
        symmetric = not snapshot.directed and norm in SYMMETRIC_NORMS
        own = reorder_rows(whole, self.own, columns)
        self._own[norm] = self._sparse(own, len(self.own), symmetric=symmetric)
        if len(self.own) == snapshot.num_nodes:  # the whole snapshot is local
            empty = np.zeros(1, np.int64), np.empty(0, np.int32), None
            self._remote_blocks[norm] = RemoteBlock(self._sparse(empty, 0), self.own[:0], None)
            if norm == "sym":
                counted = reorder_rows(self._outgoing_arcs(), self.own, columns)
            else:
                counted = own[0], own[1], self._relative_weights(norm, own, self.own)
            self._read_weights[norm] = _read_weights(norm, counted, by_cell=True)
            return
        halo = self.halo("out" if norm == "mean_out" else "in")
        all_cells = np.arange(snapshot.num_nodes)
        if norm == "sym":
            counted = self._outgoing_arcs()
        else:
            counted = whole[0], whole[1], self._relative_weights(norm, whole, all_cells)
        places = self.order.place[snapshot.nodes]
        self._read_weights[norm] = _read_weights(norm, reorder_rows(counted, self.own, places))
        row_ptr, col, weight = reorder_rows(whole, self.own, halo.column)
        rows = np.flatnonzero(np.diff(row_ptr))
        compact = np.append(row_ptr[rows], row_ptr[-1]), col, weight
        others = _read_weights(norm, reorder_rows(counted, halo.positions, places))
        self._remote_blocks[norm] = RemoteBlock(self._sparse(compact, len(halo.min_chunks)), rows, others)

    def _sparse(self, matrix: Csr, num_cols: int, *, symmetric: bool = False) -> Sparse:
        return Sparse.vstack([matrix], num_cols, dtype=self.dtype, device=self.device, symmetric=symmetric)

    def _relative_weights(self, norm: Norm, matrix: Csr, cells: IntArray) -> FloatArray | None:
        """Absolute arc weights up to a factor per row of a normalized matrix over ``cells``; None if all are 1."""
        snapshot, (row_ptr, col, weight) = self.snapshot, matrix
        if snapshot.weight is None or weight is None:
            return None
        if norm != "gcn":
            return np.abs(weight)
        absolute, loops = np.abs(snapshot.weight).astype(np.float64), np.diff(row_ptr) - snapshot.in_degree[cells]
        degree = np.bincount(expand_rows(snapshot.row_ptr), absolute, snapshot.num_nodes)[cells] + loops
        counted: FloatArray = np.abs(weight) * np.sqrt(degree)[col]
        return counted

    def _outgoing_arcs(self) -> Csr:
        """The cells that read each cell, itself excepted, with absolute weights: the arcs that ``sym`` counts."""
        snapshot = self.snapshot
        weight = np.ones(snapshot.num_arcs) if snapshot.weight is None else np.abs(snapshot.weight).astype(np.float64)
        row_ptr, col, weight_by_reader = remove_self_loops(snapshot.row_ptr, snapshot.col, weight)
        row_ptr, col, at = transpose(row_ptr, col, snapshot.num_nodes)
        return row_ptr, col, None if snapshot.weight is None else weight_by_reader[at]

    def _find_halo(self, reads: Reads) -> SnapshotHalo:
        size, rank, owners = self.snapshot.num_nodes, self.order.rank, self.owners
        column = np.full(size, -1, np.int64)
        empty: IntArray = np.empty(0, np.int64)
        if not (owners != rank).any():
            return SnapshotHalo({}, {}, column, empty, empty)
        read, reader = self.snapshot.arcs()
        read, reader = (read, reader) if reads == "in" else (reader, read)
        cut = np.flatnonzero(owners[read] != owners[reader])
        read, reader = read[cut].astype(np.int64), reader[cut].astype(np.int64)
        place = self.order.place[self.snapshot.nodes]
        local = owners[reader] == rank
        position, min_chunks = _unique_reads(read[local], place[reader[local]], place)
        order = np.lexsort((position, owners[position], min_chunks))
        position, min_chunks = position[order], min_chunks[order]
        column[position] = np.arange(len(position))
        receive = {}
        for source in np.unique(owners[position]).tolist():
            at = np.flatnonzero(owners[position] == source)
            receive[source] = NestedRows(at, min_chunks[at])
        row = np.full(size, -1, np.int64)
        row[self.own] = np.arange(len(self.own))
        send = {}
        for to in np.unique(owners[reader[owners[read] == rank]]).tolist():
            mask = (owners[read] == rank) & (owners[reader] == to)
            cells, last = _unique_reads(read[mask], place[reader[mask]], place)
            order = np.lexsort((cells, last))
            send[to] = NestedRows(row[cells[order]], last[order])
        return SnapshotHalo(send, receive, column, position, min_chunks)


def _read_weights(norm: Norm, counted: Csr, *, by_cell: bool = False) -> ReadWeights:
    """Cells that no remaining cell reads have outgoing degree 0, and ``sym`` gives their arcs the weight 0."""
    return ReadWeights(*counted, by_cell=by_cell, without_arcs=np.inf if norm == "sym" else 1.0)


def _unique_reads(read: IntArray, reader_place: IntArray, place: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct read cells, and the larger of each one's own place and that of its first reader."""
    order = np.lexsort((reader_place, read))
    read, reader_place = read[order], reader_place[order]
    first = np.flatnonzero(np.concatenate((np.ones(min(len(read), 1), bool), read[1:] != read[:-1])))
    position = read[first]
    return position, np.maximum(place[position], reader_place[first])
