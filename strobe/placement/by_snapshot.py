"""Snapshots shared out by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strobe.graph import DynamicGraph
from strobe.ops.csr import IntArray
from strobe.placement.base import Placed, Placement, even
from strobe.placement.stretches import stretches
from strobe.placement.work import Work
from strobe.strategy import Fact


@dataclass(frozen=True, kw_only=True)
class BySnapshot(Placement):
    """As many snapshots on every rank in every window: ``dealt`` in turn, or else in consecutive blocks.

    No arc is cut. Dealt, a node changes ranks at every snapshot; in blocks once per rank and window, but the load is
    only even where all snapshots cost the same.
    """

    name: ClassVar[str] = "by-snapshot"
    dealt: bool = True

    @property
    def gives(self) -> tuple[Fact, ...]:
        return ("whole snapshots",)

    def place(
        self, graph: DynamicGraph, windows: Sequence[range], num_ranks: int, *, seed: int = 0, work: Work | None = None
    ) -> Placed:
        del seed, work
        # Dealt, every window is shared out evenly wherever it begins.
        of_snapshot = np.arange(len(graph)) % num_ranks if self.dealt else in_blocks(windows, len(graph), num_ranks)
        return Placed.by_snapshot(num_ranks, of_snapshot, graph.num_nodes)


def in_blocks(windows: Sequence[range], num_snapshots: int, num_ranks: int) -> IntArray:
    """The rank of every snapshot, [T]: consecutive ones together, as many on every rank in every window."""
    of_snapshot = np.zeros(num_snapshots, np.int64)
    for stretch in stretches(windows, num_snapshots):
        of_snapshot[stretch.start : stretch.stop] = even(len(stretch), num_ranks)
    return of_snapshot
