"""Random placement of nodes by hash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from strobe.graph import Snapshot
from strobe.ops.sparse.csr import IntArray
from strobe.placement.base import Partition, PlacementRequest
from strobe.placement.streaming import StreamingPartitioner, StreamingPlacement
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class Hash(StreamingPlacement):
    """Every node, with all its cells, on a rank given by a hash of its id.

    Cost: with W ranks about (W - 1) / W of all arcs are cut.
    """

    name: ClassVar[str] = "hash"
    gives: ClassVar[tuple[Fact, ...]] = ("whole sequences",)

    def partition(self, request: PlacementRequest) -> Partition:
        """Place all nodes at once: a hash does not depend on the order of arrival."""
        graph, num_ranks = request.graph, request.num_ranks
        ranks = hash_ranks(np.arange(graph.num_nodes), num_ranks, request.seed)
        return Partition.by_node(num_ranks, ranks, len(graph))

    def start(self, num_ranks: int, *, seed: int = 0) -> StreamingPartitioner:
        """Start a partitioner, which has no state."""
        return _HashPartitioner(num_ranks, seed)


class _HashPartitioner(StreamingPartitioner):
    def __init__(self, num_ranks: int, seed: int) -> None:
        self._num_ranks, self._seed = num_ranks, seed

    def place_next(self, snapshot: Snapshot) -> IntArray:
        return hash_ranks(snapshot.nodes, self._num_ranks, self._seed)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        del state


def hash_ranks(nodes: IntArray, num_ranks: int, seed: int) -> IntArray:
    """Rank of each node by splitmix64 of its id and the seed."""
    value = nodes.astype(np.uint64) + np.uint64(seed)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    value ^= value >> np.uint64(31)
    return (value % np.uint64(num_ranks)).astype(np.int16)
