"""Whole snapshots for the structure stage, whole sequences for the time stage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from strobe.placement.base import Partition, Placement, PlacementRequest
from strobe.placement.by_snapshot import assign_blocks
from strobe.placement.loads import split_sequences_evenly
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class SnapshotThenSequence(Placement):
    """Equal numbers of snapshots per rank for the structure stage, in consecutive blocks of every window; equal numbers
    of sequences per rank for the time stage, nodes in order of id.

    No arc is cut; with W ranks about (W - 1) / W of all cells are not on the rank of their sequence.
    """

    name: ClassVar[str] = "snapshot-then-sequence"
    gives: ClassVar[tuple[Fact, ...]] = ("whole snapshots",)

    def partition(self, request: PlacementRequest) -> Partition:
        partition = Partition.by_snapshot(request.num_ranks, assign_blocks(request), request.graph.num_nodes)
        sequence_owner = split_sequences_evenly(request.graph, request.num_ranks)
        return replace(partition, sequence_owner=sequence_owner.astype(np.int16))
