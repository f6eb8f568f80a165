"""METIS on each snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from strobe.graph import Snapshot
from strobe.ops.sparse.csr import IntArray
from strobe.placement.algorithms.metis import part_graph, relabel_to_match, snapshot_adjacency
from strobe.placement.loads import loads_of_cells
from strobe.placement.streaming import StreamingPartitioner, StreamingPlacement, grow_to


@dataclass(frozen=True, kw_only=True)
class MetisPerSnapshot(StreamingPlacement):
    """METIS on each snapshot; parts are matched to ranks so that most nodes stay where they were last.

    Every snapshot is balanced with few cut edges, but nodes change ranks between snapshots.
    """

    name: ClassVar[str] = "metis-per-snapshot"

    def start(self, num_ranks: int, *, seed: int = 0) -> StreamingPartitioner:
        """Start a partitioner without snapshots."""
        return _PerSnapshotPartitioner(num_ranks, seed)


class _PerSnapshotPartitioner(StreamingPartitioner):
    def __init__(self, num_ranks: int, seed: int) -> None:
        self._num_ranks, self._seed = num_ranks, seed
        self._last: IntArray = np.empty(0, np.int16)  # rank of each node's last cell, [N]

    def place_next(self, snapshot: Snapshot) -> IntArray:
        if self._num_ranks == 1:
            return np.zeros(snapshot.num_nodes, np.int16)
        part = part_graph(snapshot_adjacency(snapshot), loads_of_cells(snapshot), self._num_ranks, self._seed)
        self._last = grow_to(self._last, snapshot)
        owners = relabel_to_match(part, self._last[snapshot.nodes], self._num_ranks).astype(np.int16)
        self._last[snapshot.nodes] = owners
        return owners

    def state_dict(self) -> dict[str, Any]:
        return {"last": self._last.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._last = np.array(state["last"], np.int16)
