"""The first snapshot in good parts, and then everybody stays."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import ClassVar

import numpy as np

from strobe.graph import Snapshot
from strobe.ops.csr import IntArray
from strobe.placement.arriving import NOWHERE
from strobe.placement.loads import loads_of_cells
from strobe.placement.partition import partition
from strobe.placement.settling import Settles, Settling
from strobe.placement.union import links


@dataclass(frozen=True, kw_only=True)
class Greedy(Settles):
    """METIS on the first snapshot that has nodes; all stay there, and who comes later joins the rank with fewest nodes.

    A baseline (Zhang and Wu 2025, §5.1), which does not say what becomes of new nodes. Nothing is weighed again: edges
    that come later are cut as chance has it, and loads drift apart where degrees change.
    """

    name: ClassVar[str] = "greedy"

    def start(self, num_ranks: int, *, seed: int = 0) -> Settling:
        """Nobody has a rank yet."""
        return _FirstComeFirstParted(num_ranks, seed)


class _FirstComeFirstParted(Settling):
    def __init__(self, num_ranks: int, seed: int) -> None:
        super().__init__(num_ranks)
        self._seed = seed

    def _ranks_of(self, snapshot: Snapshot, new: IntArray) -> IntArray:
        placed = self._of_node[self._of_node != NOWHERE]
        if not placed.size:
            return partition(links(snapshot), loads_of_cells(snapshot), self._num_ranks, self._seed)
        return with_fewest(np.bincount(placed, minlength=self._num_ranks), new.size)


def with_fewest(counts: IntArray, number: int) -> IntArray:
    """The ranks of so many newcomers, who one after the other join the rank with fewest, of equals the first."""
    ranks = [(int(count), rank) for rank, count in enumerate(counts)]
    heapify(ranks)
    joined = np.empty(number, np.int16)
    for newcomer in range(number):
        count, rank = ranks[0]
        heapreplace(ranks, (count + 1, rank))
        joined[newcomer] = rank
    return joined
