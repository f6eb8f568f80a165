"""Everything everywhere: for batches that a rank computes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from strobe.graph import DynamicGraph
from strobe.placement.base import Placed, Placement
from strobe.placement.work import Work
from strobe.strategy import Fact, Need


@dataclass(frozen=True, kw_only=True)
class Replicated(Placement):
    """Every rank has every cell. Memory: a rank reads the snapshots of its batches, whole."""

    name: ClassVar[str] = "replicated"

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("replicas", "whole snapshots", "whole sequences", "inputs at hand")

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                "batches per rank",
                "ranks that all have the same cells and the same batch would do the same work",
                "batching groups, or a placement that shares cells out",
            ),
        )

    def place(
        self, graph: DynamicGraph, windows: Sequence[range], num_ranks: int, *, seed: int = 0, work: Work | None = None
    ) -> Placed:
        del windows, seed, work
        nobody = Placed.by_node(num_ranks, np.zeros(graph.num_nodes, np.int16), len(graph))
        return replace(nobody, replicas=True)
