"""Replication of all cells on all ranks, for batches that one rank computes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from strobe.graph import DynamicGraph
from strobe.placement.base import Partition, Placement
from strobe.placement.model_costs import ModelCosts
from strobe.strategy import Fact, Need


@dataclass(frozen=True, kw_only=True)
class Replicated(Placement):
    """Every rank has every cell. Memory: the full snapshots of a rank's batches."""

    name: ClassVar[str] = "replicated"

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("replicas", "whole snapshots", "whole sequences", "local inputs")

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                "batches per rank",
                "ranks with the same cells and the same batch would do the same work",
                "batching groups, or a placement that partitions cells",
            ),
        )

    def place(
        self,
        graph: DynamicGraph,
        windows: Sequence[range],
        num_ranks: int,
        *,
        seed: int = 0,
        costs: ModelCosts | None = None,
    ) -> Partition:
        del windows, seed, costs
        partition = Partition.by_node(num_ranks, np.zeros(graph.num_nodes, np.int16), len(graph))
        return replace(partition, replicated=True)
