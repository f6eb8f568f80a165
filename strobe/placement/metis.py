"""Nodes in parts with few edges between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.placement.base import Placed, Placement
from strobe.placement.loads import loads_of_nodes
from strobe.placement.node_chunks import chunked, dealt
from strobe.placement.partition import partition
from strobe.placement.union import union
from strobe.placement.work import Work
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class Metis(Placement):
    """METIS on the union of all snapshots: parts of even load over all time (cells and arcs), where an edge weighs as
    much as snapshots have it. Every node stays on one rank.

    A part is even over all time, not in every window. ``chunks``: into so many each part is cut further, by METIS on
    its own nodes, again of even load and with few edges between them; 0: nobody asks. Needs memory for the union
    graph, a few times over.
    """

    name: ClassVar[str] = "metis"
    chunks: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chunks < 0:
            raise OptionError(f"nodes are grouped into at least 1 chunk on each rank, or 0 for none, not {self.chunks}")

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("whole sequences", "node chunks") if self.chunks else ("whole sequences",)

    def place(
        self, graph: DynamicGraph, windows: Sequence[range], num_ranks: int, *, seed: int = 0, work: Work | None = None
    ) -> Placed:
        del windows, work
        of_node = np.zeros(graph.num_nodes, np.int64)
        if num_ranks == 1 and not self.chunks:
            return Placed.by_node(num_ranks, of_node, len(graph))
        loads = loads_of_nodes(graph)
        there = np.flatnonzero(loads)
        loads, among = loads[there], union(graph, there)
        of_node[there] = partition(among, loads, num_ranks, seed)
        if not self.chunks:
            return Placed.by_node(num_ranks, of_node, len(graph))
        chunk = chunked(among, loads, of_node[there], self.chunks, seed)
        rank_of_chunk = np.zeros(int(chunk.max(initial=0)) + 1, np.int64)
        rank_of_chunk[chunk] = of_node[there]
        return Placed.by_chunk(num_ranks, rank_of_chunk, dealt(chunk, there, graph.num_nodes), len(graph))
