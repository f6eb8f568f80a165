"""Placement of whole sequences by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from strobe.graph import DynamicGraph
from strobe.placement.base import Partition, Placement
from strobe.placement.loads import split_sequences_evenly
from strobe.placement.model_costs import ModelCosts
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class BySequence(Placement):
    """Equal numbers of sequences per rank, nodes in order of id. No state moves; edges are cut by the order of ids."""

    name: ClassVar[str] = "by-sequence"

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("whole sequences",)

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
        return Partition.by_node(num_ranks, split_sequences_evenly(graph, num_ranks), len(graph))
