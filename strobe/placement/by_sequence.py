"""Placement of whole sequences by number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from strobe.placement.base import Partition, Placement, PlacementRequest
from strobe.placement.loads import split_sequences_evenly
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class BySequence(Placement):
    """Equal numbers of sequences per rank, nodes in order of id. No state moves; edges are cut by the order of ids."""

    name: ClassVar[str] = "by-sequence"
    gives: ClassVar[tuple[Fact, ...]] = ("whole sequences",)

    def partition(self, request: PlacementRequest) -> Partition:
        node_owner = split_sequences_evenly(request.graph, request.num_ranks)
        return Partition.by_node(request.num_ranks, node_owner, len(request.graph))
