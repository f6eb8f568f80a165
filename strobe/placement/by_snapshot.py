"""Placement of whole snapshots by number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strobe.ops.sparse.csr import IntArray
from strobe.placement.base import Partition, Placement, PlacementRequest, split_at_windows, split_evenly
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class BySnapshot(Placement):
    """Equal numbers of snapshots per rank in every window: ``round_robin``, or in consecutive blocks.

    No arc is cut. With round robin a node changes ranks at every snapshot; with blocks once per rank and window, but
    loads are even only if all snapshots cost the same.
    """

    name: ClassVar[str] = "by-snapshot"
    gives: ClassVar[tuple[Fact, ...]] = ("whole snapshots",)
    round_robin: bool = True

    def partition(self, request: PlacementRequest) -> Partition:
        owner = np.arange(len(request.graph)) % request.num_ranks if self.round_robin else assign_blocks(request)
        return Partition.by_snapshot(request.num_ranks, owner, request.graph.num_nodes)


def assign_blocks(request: PlacementRequest) -> IntArray:
    """Rank of every snapshot, [T]: in every window consecutive blocks with equal numbers of snapshots."""
    spans = split_at_windows(request.windows, len(request.graph))
    return np.concatenate([np.empty(0, np.int64), *(split_evenly(len(span), request.num_ranks) for span in spans)])
