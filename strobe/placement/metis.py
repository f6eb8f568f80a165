"""METIS on the union of all snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strobe.errors import OptionError
from strobe.placement.algorithms.metis import assign_absent_nodes, chunk_nodes, part_graph, union_adjacency
from strobe.placement.base import Partition, Placement, PlacementRequest
from strobe.placement.loads import loads_of_nodes
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class Metis(Placement):
    """METIS on the union of all snapshots, with edges weighted by the number of snapshots that have them: parts of even
    load (cells and arcs) over all time, not in every window. Every node stays on one rank.

    ``chunks``: METIS also splits each part into this many chunks of even load (0: none). Memory: a few times the union
    graph.
    """

    name: ClassVar[str] = "metis"
    chunks: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chunks < 0:
            raise OptionError(f"chunks of {self.name} must be at least 1 per rank, or 0 for none, not {self.chunks}")

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("whole sequences", "node chunks") if self.chunks else ("whole sequences",)

    def partition(self, request: PlacementRequest) -> Partition:
        graph, num_ranks, seed = request.graph, request.num_ranks, request.seed
        node_owner = np.zeros(graph.num_nodes, np.int64)
        if num_ranks == 1 and not self.chunks:
            return Partition.by_node(num_ranks, node_owner, len(graph))
        loads = loads_of_nodes(graph)
        present = np.flatnonzero(loads)
        loads, adjacency = loads[present], union_adjacency(graph, present)
        node_owner[present] = part_graph(adjacency, loads, num_ranks, seed)
        if not self.chunks:
            return Partition.by_node(num_ranks, node_owner, len(graph))
        chunk = chunk_nodes(adjacency, loads, node_owner[present], self.chunks, seed)
        chunk_owner = np.zeros(int(chunk.max(initial=0)) + 1, np.int64)
        chunk_owner[chunk] = node_owner[present]
        node_chunk = assign_absent_nodes(chunk, present, graph.num_nodes)
        return Partition.by_chunk(num_ranks, chunk_owner, node_chunk, len(graph))
