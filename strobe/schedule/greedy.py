"""Step by step, from the longest batch down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strobe.ops.csr import FloatArray, IntArray
from strobe.schedule.bins import Bins, bins_of, cost_of_bins, lower_bound, solved
from strobe.schedule.costs import Costs, Solved
from strobe.schedule.dealing import dealt
from strobe.schedule.packing import Packing


@dataclass(frozen=True, kw_only=True)
class Greedy(Packing):
    """A step has the longest batch that is left, alone or with another; the other ranks get
    batches that take about as long, and of all ways to begin, the one that wastes least is taken.

    For many batches a bounded number of ways is tried, so the time grows little faster than the number of batches.
    Long batches with short ones, all at once, are tried as well; the shorter epoch wins. Deterministic.
    """

    name: ClassVar[str] = "greedy"

    def solve(self, costs: Costs, num_ranks: int) -> Solved:
        bound = lower_bound(costs, num_ranks, self.limit)
        return solved(greedy_bins(costs, num_ranks, self.limit), costs, num_ranks, bound, "greedy")


def greedy_bins(costs: Costs, num_ranks: int, limit: int) -> Bins:
    """The best bins of the ways there are."""
    if not len(costs):
        return []
    from strobe.schedule.filling import fill  # numba takes its time to load

    order: IntArray = np.argsort(-costs.seconds, kind="stable")
    seconds = np.ascontiguousarray(costs.seconds[order], np.float64)
    ways = [fill(seconds, num_ranks, limit, costs.agree_s, relative) for relative in (False, True)]
    ways += dealt(seconds, num_ranks, limit)
    best = min(ways, key=lambda numbers: cost_of_bins(_loads(numbers, seconds), num_ranks, costs.agree_s))
    numbers = np.empty_like(best)
    numbers[order] = best
    return bins_of(numbers)


def _loads(numbers: IntArray, seconds: FloatArray) -> FloatArray:
    """Of the bins that are not empty."""
    loads = np.bincount(numbers, seconds).astype(np.float64)
    return loads[np.bincount(numbers) > 0]
