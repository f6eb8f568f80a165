"""Whole snapshots for the structure stage, whole sequences for the time stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from strobe.graph import DynamicGraph
from strobe.placement.base import Partition, Placement
from strobe.placement.by_snapshot import assign_blocks
from strobe.placement.loads import split_sequences_evenly
from strobe.placement.model_costs import ModelCosts
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class SnapshotThenSequence(Placement):
    """Equal numbers of snapshots per rank for the structure stage, in consecutive blocks of every window; equal numbers
    of sequences per rank for the time stage, nodes in order of id.

    No arc is cut; with W ranks about (W - 1) / W of all cells are not on the rank of their sequence.
    """

    name: ClassVar[str] = "snapshot-then-sequence"

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("whole snapshots",)

    def place(
        self,
        graph: DynamicGraph,
        windows: Sequence[range],
        num_ranks: int,
        *,
        seed: int = 0,
        costs: ModelCosts | None = None,
    ) -> Partition:
        del seed, costs
        partition = Partition.by_snapshot(num_ranks, assign_blocks(windows, len(graph), num_ranks), graph.num_nodes)
        return replace(partition, sequence_owner=split_sequences_evenly(graph, num_ranks).astype(np.int16))
