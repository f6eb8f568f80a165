"""Placements that assign owners to each snapshot as it arrives, without later snapshots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from strobe.comm import NO_RANK
from strobe.graph import Snapshot
from strobe.ops.sparse.csr import IntArray
from strobe.placement.base import Partition, Placement, PlacementRequest
from strobe.strategy import Fact


class StreamingPartitioner(ABC):
    """Assigns owners to snapshots in order of time."""

    @abstractmethod
    def place_next(self, snapshot: Snapshot) -> IntArray:
        """Assign the cells of the next snapshot, [n] int16. Node ids may exceed all earlier ones."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """State as plain values and arrays."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of a partitioner of the same placement, seed and number of ranks."""


@dataclass(frozen=True, kw_only=True)
class StreamingPlacement(Placement):
    """A placement that assigns each snapshot as it arrives."""

    @abstractmethod
    def start(self, num_ranks: int, *, seed: int = 0) -> StreamingPartitioner:
        """Start a partitioner without snapshots."""

    def partition(self, request: PlacementRequest) -> Partition:
        """Place the snapshots of a graph as if they arrived in order; windows and costs are not used."""
        graph, partitioner = request.graph, self.start(request.num_ranks, seed=request.seed)
        owner = np.zeros(graph.num_cells, np.int16)
        for snapshot in graph:
            owner[graph.cell_ptr[snapshot.t] : graph.cell_ptr[snapshot.t + 1]] = partitioner.place_next(snapshot)
        return Partition.by_cell(request.num_ranks, owner, graph)


def grow_to(ranks: IntArray, snapshot: Snapshot) -> IntArray:
    """Extend the ranks of nodes, [N], to the nodes of a snapshot with ``NO_RANK``."""
    missing = int(snapshot.nodes[-1]) + 1 - len(ranks) if snapshot.num_nodes else 0
    return np.concatenate((ranks, np.full(missing, NO_RANK, ranks.dtype))) if missing > 0 else ranks


class StickyPartitioner(StreamingPartitioner):
    """Every node keeps the rank of its first cell, also after absences."""

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._node_owner: IntArray = np.empty(0, np.int16)

    def place_next(self, snapshot: Snapshot) -> IntArray:
        """Assign new nodes; others keep their rank."""
        self._node_owner = grow_to(self._node_owner, snapshot)
        self._observe(snapshot)
        new = np.flatnonzero(self._node_owner[snapshot.nodes] == NO_RANK)
        if new.size:
            ranks = np.zeros(new.size, np.int16) if self._num_ranks == 1 else self._assign_new(snapshot, new)
            self._node_owner[snapshot.nodes[new]] = ranks
        return self._node_owner[snapshot.nodes]

    def node_owner(self, num_nodes: int) -> IntArray:
        """Rank of every node, [N]; 0 for nodes not seen yet."""
        ranks = np.zeros(num_nodes, np.int16)
        ranks[: len(self._node_owner)] = np.maximum(self._node_owner, 0)
        return ranks

    def state_dict(self) -> dict[str, Any]:
        return {"node_owner": self._node_owner.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._node_owner = np.array(state["node_owner"], np.int16)

    def _observe(self, snapshot: Snapshot) -> None:
        """Called with each snapshot before its new nodes are assigned."""

    @abstractmethod
    def _assign_new(self, snapshot: Snapshot, new: IntArray) -> IntArray:
        """Ranks of the cells ``new`` of a snapshot, whose nodes are unassigned."""


@dataclass(frozen=True, kw_only=True)
class StickyPlacement(StreamingPlacement):
    """A streaming placement in which nodes never change ranks."""

    gives: ClassVar[tuple[Fact, ...]] = ("whole sequences",)

    @abstractmethod
    def start(self, num_ranks: int, *, seed: int = 0) -> StickyPartitioner:
        """Start a partitioner without snapshots."""

    def partition(self, request: PlacementRequest) -> Partition:
        graph, partitioner = request.graph, self.start(request.num_ranks, seed=request.seed)
        for snapshot in graph:
            partitioner.place_next(snapshot)
        return Partition.by_node(request.num_ranks, partitioner.node_owner(graph.num_nodes), len(graph))
