"""Nodes in parts with few edges between them, as far as edges are known when they arrive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from strobe.graph import Snapshot
from strobe.ops.csr import IntArray
from strobe.placement.loads import loads_of_cells
from strobe.placement.partition import partition
from strobe.placement.settling import Settles, Settling
from strobe.placement.staying import renamed


@dataclass(frozen=True, kw_only=True)
class MetisSoFar(Settles):
    """METIS on the union of the snapshots that have arrived, whenever nodes come that have no rank yet.

    Its parts go to the ranks such that most nodes would stay where they are; only those who are new take what they are
    given. So it is ``metis`` without knowing the future. Evenness is not promised: parts are even, but who is in them
    already stays elsewhere. Needs memory for the union graph, a few times over, and a run of METIS per snapshot with
    newcomers.
    """

    name: ClassVar[str] = "metis-so-far"

    def start(self, num_ranks: int, *, seed: int = 0) -> Settling:
        """No snapshot has arrived."""
        return _Known(num_ranks, seed)


class _Known(Settling):
    def __init__(self, num_ranks: int, seed: int) -> None:
        super().__init__(num_ranks)
        self._seed = seed
        self._loads = np.empty(0, np.int64)  # of every node so far, [N]
        self._pairs = np.empty(0, np.int64), np.empty(0, np.int32)  # who had an edge so far, in how many snapshots

    def remembered(self) -> dict[str, Any]:
        return super().remembered() | {"loads": self._loads.copy(), "pairs": self._pairs[0], "counts": self._pairs[1]}

    def recall(self, found: dict[str, Any]) -> None:
        super().recall(found)
        self._loads = np.array(found["loads"], np.int64)
        self._pairs = np.array(found["pairs"], np.int64), np.array(found["counts"], np.int32)

    def _see(self, snapshot: Snapshot) -> None:
        if self._num_ranks == 1:
            return
        from strobe.ops.pairs import added, pairs_of  # numba takes its time to load

        self._loads = np.concatenate((self._loads, np.zeros(len(self._of_node) - len(self._loads), np.int64)))
        self._loads[snapshot.nodes] += loads_of_cells(snapshot)
        place = snapshot.nodes.astype(np.int64)
        found = pairs_of(snapshot.row_ptr, snapshot.col, directed=snapshot.directed, place=place)
        self._pairs = added(self._pairs, found)

    def _ranks_of(self, snapshot: Snapshot, new: IntArray) -> IntArray:
        from strobe.ops.pairs import both_ways  # numba takes its time to load

        there = np.flatnonzero(self._loads)
        among = both_ways(self._pairs, len(self._loads))[there][:, there]
        part = partition(among, self._loads[there], self._num_ranks, self._seed)
        ranks = renamed(part, self._of_node[there], self._num_ranks)
        return ranks[np.searchsorted(there, snapshot.nodes[new])]
