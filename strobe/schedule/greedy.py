"""Greedy packing: fill steps one by one, longest batch first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.schedule.costs import Costs, Solution
from strobe.schedule.packing.base import BinPacking
from strobe.schedule.packing.bins import Bins, cost_of_bins, group_by_bin, lower_bound, make_solution
from strobe.schedule.packing.step_filling import fill_steps


@dataclass(frozen=True, kw_only=True)
class Greedy(BinPacking):
    """Each step takes the longest remaining batch, alone or with others; the other ranks are filled up to the same
    length. Of all target lengths, the one with the least idle time wins.

    The number of target lengths is bounded, so time grows almost linearly with batches. Pairings of long with short
    batches are tried as well, and the shortest epoch is returned. Deterministic.
    """

    name: ClassVar[str] = "greedy"

    def solve(self, costs: Costs, num_ranks: int) -> Solution:
        bound = lower_bound(costs, num_ranks, self.max_per_step)
        return make_solution(greedy_bins(costs, num_ranks, self.max_per_step), costs, num_ranks, bound, "greedy")


def greedy_bins(costs: Costs, num_ranks: int, limit: int) -> Bins:
    """Return the bins with the shortest epoch of all greedy packings."""
    if not len(costs):
        return []
    order: IntArray = np.argsort(-costs.seconds, kind="stable")
    seconds = np.ascontiguousarray(costs.seconds[order], np.float64)
    candidates = [fill_steps(seconds, num_ranks, limit, costs.sync_s, relative) for relative in (False, True)]
    candidates += pair_batches(seconds, num_ranks, limit)
    best = min(candidates, key=lambda numbers: cost_of_bins(_loads(numbers, seconds), num_ranks, costs.sync_s))
    numbers = np.empty_like(best)
    numbers[order] = best
    return group_by_bin(numbers)


def _loads(numbers: IntArray, seconds: FloatArray) -> FloatArray:
    """Return the seconds of non-empty bins."""
    loads = np.bincount(numbers, seconds).astype(np.float64)
    return loads[np.bincount(numbers) > 0]


MAX_PAIRINGS = 24
"""Most numbers of bins, and of batches alone in their bin, that are tried."""


def pair_batches(seconds: FloatArray, num_ranks: int, limit: int) -> list[IntArray]:
    """Pair long with short batches in several ways; ``seconds`` is sorted, longest first.

    Returns:
        For each way the bin of every batch, [B]: with more or fewer bins, in whole steps; or with the longest batches
        alone and as few bins as possible for the others.
    """
    num = len(seconds)
    least, most = -(-num // (num_ranks * limit)), -(-num // num_ranks)
    candidates = [_fill_bins(seconds, steps * num_ranks) for steps in _spaced(least, most)]
    for alone in _spaced(1, most - 1):
        first = alone * num_ranks
        steps = -(-(num - first) // (num_ranks * limit))
        others = first + _fill_bins(seconds[first:], steps * num_ranks)
        candidates.append(np.concatenate([np.arange(first), others]))
    return candidates


def _spaced(first: int, last: int) -> list[int]:
    """Return at most MAX_PAIRINGS numbers from first to last, about evenly spaced."""
    if last < first:
        return []
    return [int(number) for number in np.linspace(first, last, min(last - first + 1, MAX_PAIRINGS))]


def _fill_bins(seconds: FloatArray, num_bins: int) -> IntArray:
    """In every round each bin gets one batch, the longest batch in the emptiest bin."""
    numbers = np.empty(len(seconds), np.int64)
    loads = np.zeros(num_bins)
    for first in range(0, len(seconds), num_bins):
        part = seconds[first : first + num_bins]
        bins = np.argsort(loads, kind="stable")[: len(part)]
        numbers[first : first + num_bins] = bins
        loads[bins] += part
    return numbers
