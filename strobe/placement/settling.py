"""Nodes that get a rank when they first arrive, and keep it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.csr import IntArray
from strobe.placement.arriving import NOWHERE, Arriving, AsTheyArrive, reaching
from strobe.placement.base import Placed
from strobe.placement.work import Work
from strobe.strategy import Fact


class Settling(Arriving):
    """Every node keeps the rank of its first cell, also while it is away."""

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._of_node: IntArray = np.empty(0, np.int16)

    def arrive(self, snapshot: Snapshot) -> IntArray:
        """Those who have a rank keep it; the others get one."""
        self._of_node = reaching(self._of_node, snapshot)
        self._see(snapshot)
        new = np.flatnonzero(self._of_node[snapshot.nodes] == NOWHERE)
        if new.size:
            ranks = np.zeros(new.size, np.int16) if self._num_ranks == 1 else self._ranks_of(snapshot, new)
            self._of_node[snapshot.nodes[new]] = ranks
        return self._of_node[snapshot.nodes]

    def settled(self, num_nodes: int) -> IntArray:
        """The rank of every node, [N]; 0 for those that never came."""
        ranks = np.zeros(num_nodes, np.int16)
        ranks[: len(self._of_node)] = np.maximum(self._of_node, 0)
        return ranks

    def remembered(self) -> dict[str, Any]:
        """Where everybody is."""
        return {"of_node": self._of_node.copy()}

    def recall(self, found: dict[str, Any]) -> None:
        """Goes on from there."""
        self._of_node = np.array(found["of_node"], np.int16)

    def _see(self, snapshot: Snapshot) -> None:
        """Takes notice of a snapshot before its new nodes are placed."""

    @abstractmethod
    def _ranks_of(self, snapshot: Snapshot, new: IntArray) -> IntArray:
        """Ranks for the cells ``new`` of a snapshot, whose nodes have none yet."""


@dataclass(frozen=True, kw_only=True)
class Settles(AsTheyArrive):
    """A placement in which nodes stay where they were first placed."""

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("whole sequences",)

    @abstractmethod
    def start(self, num_ranks: int, *, seed: int = 0) -> Settling:
        """Nobody has a rank yet."""

    def place(
        self, graph: DynamicGraph, windows: Sequence[range], num_ranks: int, *, seed: int = 0, work: Work | None = None
    ) -> Placed:
        """The ranks that nodes have when all snapshots have arrived in order: those that they always had."""
        del windows, work
        settling = self.start(num_ranks, seed=seed)
        for snapshot in graph:
            settling.arrive(snapshot)
        return Placed.by_node(num_ranks, settling.settled(graph.num_nodes), len(graph))
