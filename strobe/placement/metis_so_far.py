"""METIS on the union of the snapshots so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from strobe.graph import Snapshot
from strobe.ops.graph.pair_counts import add_pairs, empty_pairs, extract_pairs, to_symmetric_csr
from strobe.ops.sparse.csr import IntArray
from strobe.placement.algorithms.metis import part_graph, relabel_to_match
from strobe.placement.loads import loads_of_cells
from strobe.placement.streaming import StickyPartitioner, StickyPlacement


@dataclass(frozen=True, kw_only=True)
class MetisSoFar(StickyPlacement):
    """METIS on the union of the snapshots so far, whenever new nodes arrive: ``metis`` without later snapshots.

    Parts are matched to ranks so that most nodes would stay, and only new nodes are assigned. Loads may become uneven,
    since earlier nodes do not move. Cost: memory of a few union graphs, and one METIS run per snapshot with new nodes.
    """

    name: ClassVar[str] = "metis-so-far"

    def start(self, num_ranks: int, *, seed: int = 0) -> StickyPartitioner:
        """Start a partitioner without snapshots."""
        return _UnionPartitioner(num_ranks, seed)


class _UnionPartitioner(StickyPartitioner):
    def __init__(self, num_ranks: int, seed: int) -> None:
        super().__init__(num_ranks)
        self._seed = seed
        self._loads = np.empty(0, np.int64)  # load of every node so far, [N]
        self._pairs = empty_pairs()  # pairs with an edge so far, and in how many snapshots

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"loads": self._loads.copy(), "pairs": self._pairs[0], "counts": self._pairs[1]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._loads = np.array(state["loads"], np.int64)
        self._pairs = np.array(state["pairs"], np.int64), np.array(state["counts"], np.int32)

    def _observe(self, snapshot: Snapshot) -> None:
        if self._num_ranks == 1:
            return
        self._loads = np.concatenate((self._loads, np.zeros(len(self._node_owner) - len(self._loads), np.int64)))
        self._loads[snapshot.nodes] += loads_of_cells(snapshot)
        place = snapshot.nodes.astype(np.int64)
        pairs = extract_pairs(snapshot.row_ptr, snapshot.col, directed=snapshot.directed, place=place)
        self._pairs = add_pairs(self._pairs, pairs)

    def _assign_new(self, snapshot: Snapshot, new: IntArray) -> IntArray:
        present = np.flatnonzero(self._loads)
        adjacency = to_symmetric_csr(self._pairs, len(self._loads))[present][:, present]
        part = part_graph(adjacency, self._loads[present], self._num_ranks, self._seed)
        ranks = relabel_to_match(part, self._node_owner[present], self._num_ranks)
        return ranks[np.searchsorted(present, snapshot.nodes[new])]
