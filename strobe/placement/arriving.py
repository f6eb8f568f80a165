"""Snapshots that arrive one after the other: each is placed for good when it comes, whatever comes next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.csr import IntArray
from strobe.placement.base import Placed, Placement
from strobe.placement.work import Work

NOWHERE = -1
"""The rank of a node that has none."""


class Arriving(ABC):
    """Places snapshots in the order of time, and remembers what it needs of those that came before."""

    @abstractmethod
    def arrive(self, snapshot: Snapshot) -> IntArray:
        """The owners of a snapshot's cells, [n] int16, for good. Ids of nodes may be larger than any before."""

    @abstractmethod
    def remembered(self) -> dict[str, Any]:
        """All that says how it goes on, as plain values and arrays."""

    @abstractmethod
    def recall(self, found: dict[str, Any]) -> None:
        """Goes on from what one of the same placement, seed and number of ranks remembered."""


@dataclass(frozen=True, kw_only=True)
class AsTheyArrive(Placement):
    """A placement that places each snapshot when it arrives, without those to come."""

    @abstractmethod
    def start(self, num_ranks: int, *, seed: int = 0) -> Arriving:
        """Nothing has arrived yet."""

    def place(
        self, graph: DynamicGraph, windows: Sequence[range], num_ranks: int, *, seed: int = 0, work: Work | None = None
    ) -> Placed:
        """The owners that snapshots get if they arrive in order; windows and work are not known then."""
        del windows, work
        arriving = self.start(num_ranks, seed=seed)
        of_cell = np.zeros(graph.num_cells, np.int16)
        for snapshot in graph:
            of_cell[graph.cell_ptr[snapshot.t] : graph.cell_ptr[snapshot.t + 1]] = arriving.arrive(snapshot)
        return Placed.by_cell(num_ranks, of_cell, graph)


def reaching(ranks: IntArray, snapshot: Snapshot) -> IntArray:
    """The rank of every node, [N], long enough for those of a snapshot: who is not in ``ranks`` yet is nowhere."""
    missing = int(snapshot.nodes[-1]) + 1 - len(ranks) if snapshot.num_nodes else 0
    return np.concatenate((ranks, np.full(missing, NOWHERE, ranks.dtype))) if missing > 0 else ranks
