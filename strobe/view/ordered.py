"""Snapshots with a rank's cells in the order in which they stay: whatever a step keeps of one is its beginning.

An order is made once an epoch, an ordered snapshot when a window first reaches it; steps only take beginnings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.csr import FloatArray, IntArray, expand_rows
from strobe.ops.normalise import Csr, Norm, normalise
from strobe.ops.rows import reordered, row_ends
from strobe.ops.sparse import Sparse
from strobe.view.share import Reads

Inputs = Callable[[int, tuple[Norm, ...]], Tensor]
"""The features of a rank's cells of a snapshot, in order of node, or an aggregate of them by the norms of its
products."""


@dataclass(frozen=True, eq=False)
class Order:
    """The nodes of a rank in the order in which they stay; the number of a node there is its *slot*.

    ``place`` is that of each node's chunk among all chunks of all ranks: a step keeps those below a number.
    """

    rank: int
    of_node: IntArray  # [N] whose each node is
    place: IntArray  # [N]

    @cached_property
    def nodes(self) -> IntArray:
        """The rank's nodes by slot, [S]."""
        own = np.flatnonzero(self.of_node == self.rank)
        return own[np.argsort(self.place[own], kind="stable")]

    @cached_property
    def slot(self) -> IntArray:
        """The slot of every node, [N]; -1 for others'."""
        slot = np.full(len(self.of_node), -1, np.int64)
        slot[self.nodes] = np.arange(len(self.nodes))
        return slot

    @property
    def num_slots(self) -> int:
        return len(self.nodes)

    def below(self, kept: int) -> int:
        """Slots of the first ``kept`` chunks."""
        return int(np.searchsorted(self._places, kept))

    @cached_property
    def _places(self) -> IntArray:
        return self.place[self.nodes]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that a rank tells or hears, those that are wanted longest first: ``at`` numbers them, ``until`` says from
    how many kept chunks on each is wanted."""

    at: IntArray
    until: IntArray

    def number(self, kept: int) -> int:
        """How many are wanted while so many chunks are kept."""
        return int(np.searchsorted(self.until, kept))


@dataclass(frozen=True, eq=False)
class Around:
    """What a rank hears and tells about a snapshot, by the other rank. ``column`` numbers the cells that it hears, all
    ranks' together, those that are wanted longest first, by position in the snapshot; -1 for others."""

    told: Mapping[int, Rows]  # own cells
    heard: Mapping[int, Rows]  # columns
    column: IntArray  # [n]
    positions: IntArray  # [columns] in the snapshot
    until: IntArray  # [columns], ascending

    def number(self, kept: int) -> int:
        return int(np.searchsorted(self.until, kept))


@dataclass(frozen=True, eq=False)
class Degrees:
    """Absolute weights of what each of some cells reads, in proportion within a row, those first that stay longest: of
    what is kept there are the first ones of each row."""

    row_ptr: IntArray  # [r + 1]
    place: IntArray  # [E] of the chunk of the cell that is read, ascending in each row
    weight: FloatArray | None = None  # None where all are 1
    by_cell: bool = False
    """Whether a place is that of the cell itself, and cells are those of the rows."""

    def shares(self, rows: int, kept: int) -> FloatArray:
        """How much of the weight of each of the first rows is left of the first chunks, whose cells they are; 1 where
        nothing is."""
        starts, whole = self.row_ptr[:rows], self.row_ptr[1 : rows + 1]
        ends = row_ends(self.row_ptr, self.place, rows, rows if self.by_cell else kept)
        left, all_of_it = (self._sums(at) - self._sums(starts) for at in (ends, whole))
        return np.divide(left, all_of_it, out=np.ones(rows), where=left > 0)

    def _sums(self, at: IntArray) -> FloatArray:
        return at.astype(np.float64) if self.weight is None else self._summed[at]

    @cached_property
    def _summed(self) -> FloatArray:
        assert self.weight is not None
        return np.concatenate(([0.0], np.cumsum(self.weight)))


@dataclass(frozen=True, eq=False)
class Far:
    """The part of a matrix that reads others: ``rows`` are the own cells that do, ascending; ``read`` is what the cells
    it reads read themselves, by the places of chunks."""

    matrix: Sparse
    rows: IntArray
    read: Degrees | None


@dataclass(frozen=True, eq=False)
class Ordered:
    """Snapshot ``t`` of a graph as a rank has it, its cells in an order."""

    graph: DynamicGraph
    t: int
    order: Order
    inputs: Inputs
    dtype: torch.dtype
    device: torch.device
    _own: dict[Norm, Sparse] = field(default_factory=dict, init=False, repr=False)
    _degrees: dict[Norm, Degrees] = field(default_factory=dict, init=False, repr=False)
    _far: dict[Norm, Far] = field(default_factory=dict, init=False, repr=False)
    _given: dict[tuple[Norm, ...], Tensor] = field(default_factory=dict, init=False, repr=False)
    _around: dict[Reads, Around] = field(default_factory=dict, init=False, repr=False)
    _reach: dict[int, int] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def snapshot(self) -> Snapshot:
        return self.graph[self.t]

    @cached_property
    def owners(self) -> IntArray:
        """Whose each cell of the snapshot is, [n]."""
        return self.order.of_node[self.snapshot.nodes]

    @cached_property
    def own(self) -> IntArray:
        """Positions in the snapshot of the rank's cells, by slot, [c]."""
        return np.flatnonzero(self.owners == self.order.rank)[self._turn]

    @cached_property
    def slots(self) -> IntArray:
        """The slots of the rank's cells, ascending, [c]."""
        return np.flatnonzero(self._at >= 0)

    @cached_property
    def arc_ptr(self) -> IntArray:
        """Arcs that end in the cells before each, [c + 1]."""
        return np.concatenate(([0], np.cumsum(self.snapshot.in_degree[self.own], dtype=np.int64)))

    def reach(self, kept: int) -> int:
        """The rank's cells of the first ``kept`` chunks."""
        if kept not in self._reach:
            self._reach[kept] = int(np.searchsorted(self.slots, self.order.below(kept)))
        return self._reach[kept]

    def everyone(self, kept: int) -> int:
        """The cells of the first ``kept`` chunks on all ranks."""
        return int(self._everyone[min(kept, len(self._everyone) - 1)])

    def given(self, key: tuple[Norm, ...]) -> Tensor:
        """Features of the cells, or an aggregate of them, [c, F]."""
        if key not in self._given:
            rows = self.inputs(self.t, key)
            self._given[key] = rows.index_select(0, torch.from_numpy(self._turn).to(rows.device))
        return self._given[key]

    def matrix(self, norm: Norm) -> Sparse:
        """Own cells among each other, [c, c]."""
        if norm not in self._own:
            self._make(norm)
        return self._own[norm]

    def far(self, norm: Norm) -> Far:
        """What own cells read of others."""
        if norm not in self._far:
            self._make(norm)
        return self._far[norm]

    def shares(self, norm: Norm, kept: int) -> FloatArray:
        """How much of what each own cell reads is left while so many chunks are kept, of the cells that are."""
        return self._degrees[norm].shares(self.reach(kept), kept)

    def far_shares(self, norm: Norm, kept: int) -> FloatArray:
        """The same of the cells of others that they read."""
        reads: Reads = "out" if norm == "mean_out" else "in"
        read = self._far[norm].read
        return np.ones(0) if read is None else read.shares(self.around(reads).number(kept), kept)

    def ready(self, norm: Norm) -> None:
        """Makes all that a product needs."""
        if norm not in self._own:
            self._make(norm)
            if not self._own[norm].symmetric:
                _ = self._own[norm].transposed
            _ = self._far[norm].matrix.transposed

    def others_features(self, kept: int) -> Tensor:
        """Features of the cells of others that own ones read along arcs that reach them, by column."""
        around = self.around("in")
        position = around.positions[: around.number(kept)]
        assert self.snapshot.x is not None
        return torch.from_numpy(np.asarray(self.snapshot.x)[position]).to(self.device, self.dtype)

    def around(self, reads: Reads) -> Around:
        """Whom the rank hears and tells in a sparse product."""
        reads = reads if self.snapshot.directed else "in"
        if reads not in self._around:
            self._around[reads] = self._found(reads)
        return self._around[reads]

    @cached_property
    def _at(self) -> IntArray:
        """Which of the rank's cells, in order of node, has each slot; -1 where the node is absent."""
        nodes = self.snapshot.nodes[self.owners == self.order.rank]
        at = np.full(self.order.num_slots, -1, np.int64)
        at[self.order.slot[nodes]] = np.arange(len(nodes))
        return at

    @cached_property
    def _turn(self) -> IntArray:
        return self._at[self._at >= 0]

    @cached_property
    def _everyone(self) -> IntArray:
        return np.concatenate(([0], np.cumsum(np.bincount(self.order.place[self.snapshot.nodes]))))

    def _make(self, norm: Norm) -> None:
        snapshot = self.snapshot
        whole = normalise(norm, snapshot.row_ptr, snapshot.col, snapshot.weight)
        columns = np.full(snapshot.num_nodes, -1, np.int32)
        columns[self.own] = np.arange(len(self.own))
        symmetric = not snapshot.directed and norm in ("gcn", "sum", "loops")
        own = reordered(whole, self.own, columns)
        self._own[norm] = self._sparse(own, len(self.own), symmetric=symmetric)
        if len(self.own) == snapshot.num_nodes:  # nobody else has any
            nothing = np.zeros(1, np.int64), np.empty(0, np.int32), None
            self._far[norm] = Far(self._sparse(nothing, 0), self.own[:0], None)
            self._degrees[norm] = Degrees(own[0], own[1], self._in_proportion(norm, own, self.own), by_cell=True)
            return
        around = self.around("out" if norm == "mean_out" else "in")
        everyone = np.arange(snapshot.num_nodes)
        counted = whole[0], whole[1], self._in_proportion(norm, whole, everyone)
        places = self.order.place[snapshot.nodes]
        self._degrees[norm] = Degrees(*reordered(counted, self.own, places))
        row_ptr, col, weight = reordered(whole, self.own, around.column)
        rows = np.flatnonzero(np.diff(row_ptr))
        compact = np.append(row_ptr[rows], row_ptr[-1]), col, weight
        others = Degrees(*reordered(counted, around.positions, places))
        self._far[norm] = Far(self._sparse(compact, len(around.until)), rows, others)

    def _sparse(self, matrix: Csr, num_cols: int, *, symmetric: bool = False) -> Sparse:
        return Sparse.stacked([matrix], num_cols, dtype=self.dtype, device=self.device, symmetric=symmetric)

    def _in_proportion(self, norm: Norm, matrix: Csr, cells: IntArray) -> FloatArray | None:
        """Absolute weights of arcs, in proportion within each row of a normalised matrix whose rows and columns are
        some cells; None where all are 1."""
        snapshot, (row_ptr, col, weight) = self.snapshot, matrix
        if snapshot.weight is None or weight is None:
            return None
        if norm != "gcn":
            return np.abs(weight)
        given, loops = np.abs(snapshot.weight).astype(np.float64), np.diff(row_ptr) - snapshot.in_degree[cells]
        degree = np.bincount(expand_rows(snapshot.row_ptr), given, snapshot.num_nodes)[cells] + loops
        counted: FloatArray = np.abs(weight) * np.sqrt(degree)[col]
        return counted

    def _found(self, reads: Reads) -> Around:
        size, rank, owners = self.snapshot.num_nodes, self.order.rank, self.owners
        column = np.full(size, -1, np.int64)
        nothing: IntArray = np.empty(0, np.int64)
        if not (owners != rank).any():
            return Around({}, {}, column, nothing, nothing)
        read, reader = self.snapshot.arcs()
        read, reader = (read, reader) if reads == "in" else (reader, read)
        cut = np.flatnonzero(owners[read] != owners[reader])
        read, reader = read[cut].astype(np.int64), reader[cut].astype(np.int64)
        place = self.order.place[self.snapshot.nodes]
        mine = owners[reader] == rank
        position, until = _wanted(read[mine], place[reader[mine]], place)
        order = np.lexsort((position, owners[position], until))
        position, until = position[order], until[order]
        column[position] = np.arange(len(position))
        heard = {}
        for source in np.unique(owners[position]).tolist():
            at = np.flatnonzero(owners[position] == source)
            heard[source] = Rows(at, until[at])
        row = np.full(size, -1, np.int64)
        row[self.own] = np.arange(len(self.own))
        told = {}
        for to in np.unique(owners[reader[owners[read] == rank]]).tolist():
            asks = (owners[read] == rank) & (owners[reader] == to)
            wanted, last = _wanted(read[asks], place[reader[asks]], place)
            order = np.lexsort((wanted, last))
            told[to] = Rows(row[wanted[order]], last[order])
        return Around(told, heard, column, position, until)


def _wanted(read: IntArray, reader_place: IntArray, place: IntArray) -> tuple[IntArray, IntArray]:
    """Each cell that is read once, and the place up to which it is: the larger of its own and its first reader's."""
    order = np.lexsort((reader_place, read))
    read, reader_place = read[order], reader_place[order]
    first = np.flatnonzero(np.concatenate((np.ones(min(len(read), 1), bool), read[1:] != read[:-1])))
    position = read[first]
    return position, np.maximum(place[position], reader_place[first])
