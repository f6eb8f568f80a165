"""Placement axis: which rank owns each cell in the structure stage and each sequence in the time stage."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np

from strobe.errors import InputError
from strobe.graph import DynamicGraph
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.placement.model_costs import CELL_LOAD, ModelCosts
from strobe.strategy import Strategy

_TABLE = 1 << 24  # maximum entries of a table of nodes by ranks


@dataclass(frozen=True, eq=False)
class Partition:
    """Owners of all cells of a graph.

    Args:
        num_ranks: number of ranks.
        snapshot_owner: [T]; rank ``snapshot_owner[t] + node_owner[v]`` owns cell (v, t) unless ``cell_owner`` is given.
        node_owner: [N].
        cell_owner: owner of every cell in snapshot-major order, [C].
        sequence_owner: owner of each sequence in the time stage, [N]; by default the rank with most of its cells.
        cell_chunk: chunk of every cell, [C]; the cells of a chunk are on one rank.
        replicated: every rank has all cells; the owners are ignored.
        node_loads: load of each node, [N].
        node_chunk: chunk of every node, [N]; no chunk is empty.
    """

    num_ranks: int
    snapshot_owner: IntArray  # [T]
    node_owner: IntArray  # [N]
    cell_owner: IntArray | None = None  # [C]
    sequence_owner: IntArray | None = None  # [N]
    cell_chunk: IntArray | None = None  # [C]
    replicated: bool = False
    node_loads: FloatArray | None = None  # [N]
    node_chunk: IntArray | None = None  # [N]

    @classmethod
    def by_snapshot(cls, num_ranks: int, snapshot_owner: IntArray, num_nodes: int) -> Partition:
        return cls(num_ranks, snapshot_owner.astype(np.int64), np.zeros(num_nodes, np.int16))

    @classmethod
    def by_node(cls, num_ranks: int, node_owner: IntArray, num_snapshots: int) -> Partition:
        """Partition by node: sequences stay whole."""
        node_owner = node_owner.astype(np.int16)
        return cls(num_ranks, np.zeros(num_snapshots, np.int64), node_owner, sequence_owner=node_owner)

    @classmethod
    def by_chunk(cls, num_ranks: int, chunk_owner: IntArray, node_chunk: IntArray, num_snapshots: int) -> Partition:
        """Partition by chunks of nodes."""
        partition = cls.by_node(num_ranks, chunk_owner[node_chunk], num_snapshots)
        return replace(partition, node_chunk=node_chunk.astype(np.int32))

    @classmethod
    def by_cell(cls, num_ranks: int, cell_owner: IntArray, graph: DynamicGraph) -> Partition:
        zeros = np.zeros(len(graph), np.int64), np.zeros(graph.num_nodes, np.int16)
        return cls(num_ranks, *zeros, cell_owner=cell_owner.astype(np.int16))

    def owners(self, graph: DynamicGraph, t: int) -> IntArray:
        """Owner of every cell of snapshot t, [n]."""
        if self.cell_owner is not None:
            return self.cell_owner[int(graph.cell_ptr[t]) : int(graph.cell_ptr[t + 1])]
        return self.node_owner[graph[t].nodes] + np.int16(self.snapshot_owner[t])

    @cached_property
    def whole_snapshots(self) -> bool:
        """Whether every snapshot is on one rank."""
        return self.cell_owner is None and not self.node_owner.any()

    @cached_property
    def whole_sequences(self) -> bool:
        """Whether every sequence is on one rank."""
        return self.cell_owner is None and bool((self.snapshot_owner == self.snapshot_owner[:1]).all())

    @cached_property
    def chunk_owner(self) -> IntArray:
        """Rank of every chunk of nodes, [K]."""
        assert self.node_chunk is not None
        ranks = np.zeros(int(self.node_chunk.max(initial=-1)) + 1, self.node_owner.dtype)
        ranks[self.node_chunk] = self.node_owner
        return ranks

    def extend_to(self, num_snapshots: int) -> Partition:
        """Extend a partition of whole sequences to a graph with more snapshots."""
        assert self.whole_sequences, "only whole sequences can be extended"
        return replace(self, snapshot_owner=np.resize(self.snapshot_owner[:1], num_snapshots))

    def with_sequence_owner(self, graph: DynamicGraph) -> Partition:
        """Assign every sequence to the rank with most of its cells; ties are spread evenly."""
        if self.sequence_owner is not None:
            return self
        size = max(1, _TABLE // self.num_ranks)
        bounds = [(first, min(first + size, graph.num_nodes)) for first in range(0, graph.num_nodes, size)]
        parts = [np.empty(0, np.int16), *(self._majority_owner(graph, *each) for each in bounds)]
        return replace(self, sequence_owner=np.concatenate(parts))

    def _majority_owner(self, graph: DynamicGraph, first: int, last: int) -> IntArray:
        """Rank with most cells of each of the nodes ``first:last``."""
        count = np.zeros((last - first, self.num_ranks), np.int32)
        for t in range(len(graph)):
            nodes = graph[t].nodes
            at = slice(*np.searchsorted(nodes, (first, last)).tolist())
            count[nodes[at] - first, self.owners(graph, t)[at]] += 1
        shift = np.arange(first, last) % self.num_ranks
        shifted = np.take_along_axis(count, (shift[:, None] + np.arange(self.num_ranks)) % self.num_ranks, axis=1)
        owner: IntArray = ((shifted.argmax(1) + shift) % self.num_ranks).astype(np.int16)
        return owner


@dataclass(frozen=True, eq=False)
class PlacementRequest:
    """What a placement may read.

    Args:
        graph: the graph.
        windows: ranges of snapshots computed together; all ranks should have work in each.
        num_ranks: number of ranks.
        seed: seed of random choices.
        costs: bytes and loads of the model; the defaults if it is unknown.
    """

    graph: DynamicGraph
    windows: Sequence[range]
    num_ranks: int
    seed: int
    costs: ModelCosts


@dataclass(frozen=True, kw_only=True)
class Placement(Strategy):
    """Assigns cells to ranks. Deterministic in graph, windows, seed and costs, on any machine."""

    needs_model_costs: ClassVar[bool] = False
    """Whether ``place`` reads the costs of the model, which must be measured first."""

    @property
    def needs_measured_loads(self) -> bool:
        """Whether loads are predicted seconds of the model instead of counted cells and arcs."""
        return False

    def place(
        self,
        graph: DynamicGraph,
        windows: Sequence[range],
        num_ranks: int,
        *,
        seed: int = 0,
        costs: ModelCosts | None = None,
    ) -> Partition:
        """Assign all cells to ranks; the arguments are those of ``PlacementRequest``."""
        return self.partition(PlacementRequest(graph, windows, num_ranks, seed, costs or ModelCosts()))

    @abstractmethod
    def partition(self, request: PlacementRequest) -> Partition:
        """Choose the owners of all cells."""


def snapshot_loads(graph: DynamicGraph) -> IntArray:
    """Load of each snapshot in arcs, [T]."""
    return CELL_LOAD * np.diff(graph.cell_ptr) + np.array([snapshot.num_arcs for snapshot in graph], np.int64)


def split_evenly(count: int, num_ranks: int) -> IntArray:
    """Rank of each of ``count`` items, in consecutive blocks of similar size."""
    return np.arange(count, dtype=np.int64) * num_ranks // max(count, 1)


def split_at_windows(windows: Sequence[range], num_snapshots: int) -> list[range]:
    """Split all snapshots into consecutive ranges, at the start and end of every window.

    Raises:
        InputError: a window is not a range of the graph's snapshots.
    """
    cuts = {0, num_snapshots}
    for window in windows:
        if window.step != 1 or window.start < 0 or window.stop > num_snapshots:
            raise InputError(f"window {window} is not a range of the graph's {num_snapshots:,} snapshots")
        cuts |= {window.start, window.stop} if len(window) else set()
    return [range(first, last) for first, last in pairwise(sorted(cuts))]
