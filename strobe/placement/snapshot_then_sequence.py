"""Whole snapshots for the structure stage, whole sequences for the time stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from strobe.graph import DynamicGraph
from strobe.placement.base import Placed, Placement
from strobe.placement.by_snapshot import in_blocks
from strobe.placement.loads import even_sequences
from strobe.placement.work import Work
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class SnapshotThenSequence(Placement):
    """As many snapshots on every rank, in consecutive blocks of every window; as many sequences on every rank, nodes
    in order of id, for a time stage that wants them whole.

    No arc is cut; with W ranks about (W - 1) / W of all cells are not with their sequence's owner.
    """

    name: ClassVar[str] = "snapshot-then-sequence"

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("whole snapshots",)

    def place(
        self, graph: DynamicGraph, windows: Sequence[range], num_ranks: int, *, seed: int = 0, work: Work | None = None
    ) -> Placed:
        del seed, work
        placed = Placed.by_snapshot(num_ranks, in_blocks(windows, len(graph), num_ranks), graph.num_nodes)
        return replace(placed, of_sequence=even_sequences(graph, num_ranks).astype(np.int16))
