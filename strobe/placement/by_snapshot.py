"""Placement of whole snapshots by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strobe.graph import DynamicGraph
from strobe.ops.sparse.csr import IntArray
from strobe.placement.base import Partition, Placement, split_at_windows, split_evenly
from strobe.placement.model_costs import ModelCosts
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class BySnapshot(Placement):
    """Equal numbers of snapshots per rank in every window: ``round_robin``, or in consecutive blocks.

    No arc is cut. With round robin a node changes ranks at every snapshot; with blocks once per rank and window, but
    loads are even only if all snapshots cost the same.
    """

    name: ClassVar[str] = "by-snapshot"
    round_robin: bool = True

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
        if self.round_robin:
            owner: IntArray = np.arange(len(graph)) % num_ranks
        else:
            owner = assign_blocks(windows, len(graph), num_ranks)
        return Partition.by_snapshot(num_ranks, owner, graph.num_nodes)


def assign_blocks(windows: Sequence[range], num_snapshots: int, num_ranks: int) -> IntArray:
    """Rank of every snapshot, [T]: in every window consecutive blocks with equal numbers of snapshots."""
    owner = np.zeros(num_snapshots, np.int64)
    for span in split_at_windows(windows, num_snapshots):
        owner[span.start : span.stop] = split_evenly(len(span), num_ranks)
    return owner
