"""Nodes in parts with few edges between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strobe.graph import DynamicGraph
from strobe.placement.base import Placed, Placement
from strobe.placement.loads import loads_of_nodes
from strobe.placement.partition import partition
from strobe.placement.union import union
from strobe.placement.work import Work
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class Metis(Placement):
    """METIS on the union of all snapshots: parts of even load over all time (cells and arcs), where an edge weighs as
    much as snapshots have it. Every node stays on one rank.

    A part is even over all time, not in every window. Needs memory for the union graph, a few times over.
    """

    name: ClassVar[str] = "metis"

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("whole sequences",)

    def place(
        self, graph: DynamicGraph, windows: Sequence[range], num_ranks: int, *, seed: int = 0, work: Work | None = None
    ) -> Placed:
        del windows, work
        of_node = np.zeros(graph.num_nodes, np.int64)
        if num_ranks > 1:
            loads = loads_of_nodes(graph)
            there = np.flatnonzero(loads)
            of_node[there] = partition(union(graph, there), loads[there], num_ranks, seed)
        return Placed.by_node(num_ranks, of_node, len(graph))
