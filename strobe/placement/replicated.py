"""Replication of all cells on all ranks, for batches that one rank computes alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from strobe.placement.base import Partition, Placement, PlacementRequest
from strobe.strategy import Fact, Need


@dataclass(frozen=True, kw_only=True)
class Replicated(Placement):
    """Every rank has every cell. Memory: the full snapshots of a rank's batches."""

    name: ClassVar[str] = "replicated"
    gives: ClassVar[tuple[Fact, ...]] = ("replicas", "whole snapshots", "whole sequences", "local inputs")

    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            "batches per rank",
            "ranks with the same cells and the same batch would do the same work",
            "batching groups, or a placement that partitions cells",
        ),
    )

    def partition(self, request: PlacementRequest) -> Partition:
        graph = request.graph
        partition = Partition.by_node(request.num_ranks, np.zeros(graph.num_nodes, np.int16), len(graph))
        return replace(partition, replicated=True)
