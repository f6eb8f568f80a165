"""The second axis: which rank owns each cell in the structure stage, and each sequence in the time stage."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from strobe.graph import DynamicGraph
from strobe.ops.csr import FloatArray, IntArray
from strobe.placement.work import CELL_LOAD, Work
from strobe.strategy import Strategy

_TABLE = 1 << 24
"""Numbers that a table of nodes and ranks may have; with more, it is made for some nodes at a time."""


@dataclass(frozen=True, eq=False)
class Placed:
    """Owners of all cells of a graph: rank ``of_snapshot[t] + of_node[v]`` owns cell (v, t), unless ``of_cell`` says
    otherwise.

    ``of_sequence`` owns whole sequences where a time stage wants them in one place; without it each belongs to the
    rank that has most of its cells. With ``replicas`` every rank has all cells and the rest does not count.
    ``of_chunk`` tells cells apart that hang together: those of a chunk are on one rank. ``chunk_of_node`` does so for
    nodes, for all time: chunks 0, 1, … have a node each at least. ``loads`` is what it takes to compute each node,
    where that was asked.
    """

    num_ranks: int
    of_snapshot: IntArray  # [T]
    of_node: IntArray  # [N]
    of_cell: IntArray | None = None  # [C], cells of the whole graph, t-major
    of_sequence: IntArray | None = None  # [N]
    of_chunk: IntArray | None = None  # [C]
    replicas: bool = False
    loads: FloatArray | None = None  # [N]
    chunk_of_node: IntArray | None = None  # [N]

    @classmethod
    def by_snapshot(cls, num_ranks: int, of_snapshot: IntArray, num_nodes: int) -> Placed:
        return cls(num_ranks, of_snapshot.astype(np.int64), np.zeros(num_nodes, np.int16))

    @classmethod
    def by_node(cls, num_ranks: int, of_node: IntArray, num_snapshots: int) -> Placed:
        """Sequences stay whole: their owners are their nodes'."""
        of_node = of_node.astype(np.int16)
        return cls(num_ranks, np.zeros(num_snapshots, np.int64), of_node, of_sequence=of_node)

    @classmethod
    def by_chunk(cls, num_ranks: int, rank_of_chunk: IntArray, chunk_of_node: IntArray, num_snapshots: int) -> Placed:
        """Nodes stay where their chunks are."""
        placed = cls.by_node(num_ranks, rank_of_chunk[chunk_of_node], num_snapshots)
        return replace(placed, chunk_of_node=chunk_of_node.astype(np.int32))

    @classmethod
    def by_cell(cls, num_ranks: int, of_cell: IntArray, graph: DynamicGraph) -> Placed:
        nothing = np.zeros(len(graph), np.int64), np.zeros(graph.num_nodes, np.int16)
        return cls(num_ranks, *nothing, of_cell=of_cell.astype(np.int16))

    def owners(self, graph: DynamicGraph, t: int) -> IntArray:
        """The owner of every cell of snapshot t, [n]."""
        if self.of_cell is not None:
            return self.of_cell[int(graph.cell_ptr[t]) : int(graph.cell_ptr[t + 1])]
        return self.of_node[graph[t].nodes] + np.int16(self.of_snapshot[t])

    @cached_property
    def whole_snapshots(self) -> bool:
        """Whether every snapshot is on one rank."""
        return self.of_cell is None and not self.of_node.any()

    @cached_property
    def whole_sequences(self) -> bool:
        """Whether every sequence is on one rank."""
        return self.of_cell is None and bool((self.of_snapshot == self.of_snapshot[:1]).all())

    @cached_property
    def rank_of_chunk(self) -> IntArray:
        """The rank of every chunk of nodes, [K]."""
        assert self.chunk_of_node is not None
        ranks = np.zeros(int(self.chunk_of_node.max(initial=-1)) + 1, self.of_node.dtype)
        ranks[self.chunk_of_node] = self.of_node
        return ranks

    def extended_to(self, num_snapshots: int) -> Placed:
        """The same owners of whole sequences in a graph with more snapshots after those that were placed."""
        assert self.whole_sequences, "cells of later snapshots belong to the owners of their sequences"
        return replace(self, of_snapshot=np.resize(self.of_snapshot[:1], num_snapshots))

    def with_sequences(self, graph: DynamicGraph) -> Placed:
        """The same with an owner for every sequence: the rank that has most of its cells, of equals the one that an
        even distribution gives it."""
        if self.of_sequence is not None:
            return self
        some = max(1, _TABLE // self.num_ranks)
        bounds = [(first, min(first + some, graph.num_nodes)) for first in range(0, graph.num_nodes, some)]
        parts = [np.empty(0, np.int16), *(self._most_of(graph, *each) for each in bounds)]
        return replace(self, of_sequence=np.concatenate(parts))

    def _most_of(self, graph: DynamicGraph, first: int, last: int) -> IntArray:
        """The rank that has most cells of each of some nodes."""
        count = np.zeros((last - first, self.num_ranks), np.int32)
        for t in range(len(graph)):
            nodes = graph[t].nodes
            at = slice(*np.searchsorted(nodes, (first, last)).tolist())
            count[nodes[at] - first, self.owners(graph, t)[at]] += 1  # a node is in a snapshot once
        turn = np.arange(first, last) % self.num_ranks
        turned = np.take_along_axis(count, (turn[:, None] + np.arange(self.num_ranks)) % self.num_ranks, axis=1)
        most: IntArray = ((turned.argmax(1) + turn) % self.num_ranks).astype(np.int16)
        return most


@dataclass(frozen=True, kw_only=True)
class Placement(Strategy):
    """A way to share out cells. The same graph, windows, seed and work give the same owners, on any machine."""

    wants_work: ClassVar[bool] = False
    """Whether it asks what a model sends and costs, which has to be found out first."""

    @property
    def wants_seconds(self) -> bool:
        """Whether loads should be the model's seconds, as predicted, rather than cells and arcs that are counted."""
        return False

    @abstractmethod
    def place(
        self, graph: DynamicGraph, windows: Sequence[range], num_ranks: int, *, seed: int = 0, work: Work | None = None
    ) -> Placed:
        """Owners of all cells. ``windows`` are the stretches of time that are computed together: all ranks should
        have work in each. ``work`` is what the model does, None where nobody knows."""


def cell_loads(graph: DynamicGraph) -> IntArray:
    """What each snapshot costs, [T], in arcs."""
    return CELL_LOAD * np.diff(graph.cell_ptr) + np.array([snapshot.num_arcs for snapshot in graph], np.int64)


def even(count: int, num_ranks: int) -> IntArray:
    """The rank of each of ``count`` things in order, in stretches of about equal number."""
    return np.arange(count, dtype=np.int64) * num_ranks // max(count, 1)
