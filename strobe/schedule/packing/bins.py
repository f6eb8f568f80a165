"""Bins: the batches of one rank in one step. Ranks and steps are interchangeable: only the contents of bins matter.

Given the bins, the shortest schedule sorts them, longest first, and makes a step of every W bins in a row: swapping two
bins that are out of this order between steps makes no step longer. An epoch thus takes as long as the 1st, (W + 1)th,
(2W + 1)th, ... longest bins together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.schedule.costs import Costs, Solution, Steps

Bins = list[list[int]]
"""Batch indices of every bin. No bin is empty; every batch is in one bin."""

TOLERANCE = 1e-9
"""Relative difference of sums that may come from the order of summation."""

MAX_EXCHANGES = 20
"""Most swaps per rank that balance an epoch."""

MAX_SIZES = 200
"""Most sizes that times are rounded down to: each is a pass over all batches."""


def cost_of_bins(loads: FloatArray, num_ranks: int, sync_s: float) -> float:
    """Return the seconds of an epoch with bins of these loads."""
    longest_first = np.sort(loads)[::-1]
    firsts = longest_first[::num_ranks]
    return float(firsts.sum() + sync_s * len(firsts))


def group_by_bin(numbers: Sequence[int] | IntArray) -> Bins:
    """Build bins from the bin number of every batch."""
    bins: dict[int, list[int]] = {}
    for batch, number in enumerate(np.asarray(numbers).tolist()):
        bins.setdefault(number, []).append(batch)
    return list(bins.values())


def make_solution(bins: Bins, costs: Costs, num_ranks: int, bound: float, method: str) -> Solution:
    """Build the schedule of these bins."""
    steps = steps_from_bins(bins, costs, num_ranks)
    cost = costs.epoch_seconds(steps)
    return Solution(steps=steps, cost=cost, bound=bound if bound < cost * (1 - TOLERANCE) else cost, method=method)


def steps_from_bins(bins: Bins, costs: Costs, num_ranks: int) -> Steps:
    """Build the shortest schedule of these bins, steps sorted by the mean index of their batches.

    The bins of a step are assigned to ranks so that ranks are balanced over the epoch.
    """
    loads = np.array([costs.seconds[batches].sum() for batches in bins])
    order = sorted(range(len(bins)), key=lambda b: (-loads[b], bins[b]))
    runs = [order[first : first + num_ranks] for first in range(0, len(order), num_ranks)]
    runs.sort(key=lambda run: float(np.mean([batch for b in run for batch in bins[b]])))
    assignment = _assign_to_ranks([loads[run] for run in runs], num_ranks)
    return [
        [sorted(bins[run[k]]) if k < len(run) else [] for k in ranks]
        for run, ranks in zip(runs, assignment, strict=True)
    ]


def _assign_to_ranks(steps: Sequence[FloatArray], num_ranks: int) -> list[list[int]]:
    """Return for every step and rank the index of its bin in the step; an index beyond the last is no bin.

    First the longest bin goes to the rank with the least load so far; then the most and the least loaded rank swap
    their bins of one step as long as that brings their loads closer.
    """
    load = np.zeros((len(steps), num_ranks))
    bins = np.zeros((len(steps), num_ranks), np.int64)
    total = np.zeros(num_ranks)
    for number, step in enumerate(steps):
        ranks = np.argsort(total, kind="stable")
        bins[number, ranks] = np.arange(num_ranks)
        load[number, ranks[: len(step)]] = step
        total += load[number]
    for _ in range(MAX_EXCHANGES * num_ranks if len(steps) else 0):
        full, empty = int(total.argmax()), int(total.argmin())
        apart = total[full] - total[empty]
        more = load[:, full] - load[:, empty]
        number = int(np.abs(apart - 2 * more).argmin())
        if abs(apart - 2 * more[number]) >= apart * (1 - TOLERANCE):
            break
        for each in (load, bins):
            each[number, [full, empty]] = each[number, [empty, full]]
        total[[full, empty]] += [-more[number], more[number]]
    return bins.tolist()


def lower_bound(costs: Costs, num_ranks: int, limit: int) -> float:
    """Return a lower bound of the seconds of an epoch over all schedules."""
    if not len(costs):
        return 0.0
    longest_first = np.sort(costs.seconds)[::-1]
    least = max(_by_steps(longest_first, num_ranks, limit), _by_sizes(longest_first, num_ranks))
    return least + costs.sync_s * -(-len(costs) // (num_ranks * limit))


def _by_steps(seconds: FloatArray, num_ranks: int, limit: int) -> float:
    """Bound by the longest batches. Order steps by their longest batch. The longest of step i is at least as long as
    the longest batch outside of the i - 1 steps before it, which hold W L batches each. A batch added to its bin
    lengthens the step by its seconds but relieves the rest by only a Wth of them, so let it be alone. The first k steps
    then hold k batches that are alone and k (W - 1) L others; the remaining batches take at least their sum / W.
    """
    firsts = np.concatenate([[0.0], np.cumsum(seconds[:: num_ranks * limit])])
    before = np.concatenate([[0.0], np.cumsum(seconds)])
    held = np.arange(len(firsts)) * (1 + (num_ranks - 1) * limit)
    left = before[-1] - before[np.minimum(held, len(seconds))]
    return float((firsts + left / num_ranks).max())


def _by_sizes(seconds: FloatArray, num_ranks: int) -> float:
    """Bound by rounding. Rounded down to multiples of one size, no batch gets longer, and an epoch takes a whole number
    of sizes. Tight for equal batches."""
    sizes = np.unique(seconds[seconds > 0])
    chosen = sizes[np.unique(np.linspace(0, len(sizes) - 1, min(len(sizes), MAX_SIZES)).astype(np.int64))]
    return max((float(size * -(-np.floor(seconds / size).sum() // num_ranks)) for size in chosen), default=0.0)
