"""Nodes shared out by lot: even, blind to edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strobe.graph import DynamicGraph
from strobe.placement.base import Placed, Placement
from strobe.placement.work import Work
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class Hash(Placement):
    """Every node, with all its cells, on a rank drawn by a hash of its number.

    Cost: with W ranks about (W - 1) / W of all arcs are cut.
    """

    name: ClassVar[str] = "hash"

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("whole sequences",)

    def place(
        self, graph: DynamicGraph, windows: Sequence[range], num_ranks: int, *, seed: int = 0, work: Work | None = None
    ) -> Placed:
        del windows, work
        number = np.arange(graph.num_nodes, dtype=np.uint64) + np.uint64(seed)
        number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        number ^= number >> np.uint64(31)
        return Placed.by_node(num_ranks, (number % np.uint64(num_ranks)).astype(np.int16), len(graph))
