"""Batches of a rank in a step are a bin. Ranks are alike and so are steps: only which batches share a bin matters.

Given the bins, no schedule is shorter than the one that sorts them, longest first, and gives every W of them, one after
the other, a step: exchanging two bins that are out of this order between steps makes no step longer. An epoch thus
takes the 1st, the (W + 1)th, the (2W + 1)th longest bin, and so on, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from strobe.ops.csr import FloatArray, IntArray
from strobe.schedule.costs import Costs, Solved, Steps

Bins = list[list[int]]
"""The numbers of the batches of every bin; none is empty, and every batch is in one."""

SAME = 1e-9
"""Sums that differ by less, as a part of them, differ only in the order of adding."""

SIZES = 200
"""Sizes that times are rounded down to, at most: each costs a look at all batches."""


def cost_of_bins(loads: FloatArray, num_ranks: int, agree_s: float) -> float:
    """Seconds of an epoch whose bins take so long."""
    longest_first = np.sort(loads)[::-1]
    firsts = longest_first[::num_ranks]
    return float(firsts.sum() + agree_s * len(firsts))


def bins_of(numbers: Sequence[int] | IntArray) -> Bins:
    """Bins, from the number of the bin of every batch."""
    bins: dict[int, list[int]] = {}
    for batch, number in enumerate(np.asarray(numbers).tolist()):
        bins.setdefault(number, []).append(batch)
    return list(bins.values())


def solved(bins: Bins, costs: Costs, num_ranks: int, bound: float, by: str) -> Solved:
    """The schedule of these bins."""
    steps = steps_of(bins, costs, num_ranks)
    cost = costs.of(steps)
    return Solved(steps=steps, cost=cost, bound=bound if bound < cost * (1 - SAME) else cost, by=by)


def steps_of(bins: Bins, costs: Costs, num_ranks: int) -> Steps:
    """The shortest schedule of these bins, about in order of time: steps by the mean number of their batches.

    In a step the longest bin goes to the rank that had least to do so far, so that ranks are even over the epoch.
    """
    loads = np.array([costs.seconds[batches].sum() for batches in bins])
    order = sorted(range(len(bins)), key=lambda b: (-loads[b], bins[b]))
    runs = [order[first : first + num_ranks] for first in range(0, len(order), num_ranks)]
    runs.sort(key=lambda run: float(np.mean([batch for b in run for batch in bins[b]])))
    done = np.zeros(num_ranks)
    steps: Steps = []
    for run in runs:
        ranks = np.argsort(done, kind="stable")[: len(run)]
        step: list[list[int]] = [[] for _ in range(num_ranks)]
        for b, rank in zip(run, ranks.tolist(), strict=True):
            step[rank] = sorted(bins[b])
            done[rank] += loads[b]
        steps.append(step)
    return steps


def lower_bound(costs: Costs, num_ranks: int, limit: int) -> float:
    """Seconds that no schedule stays below."""
    if not len(costs):
        return 0.0
    longest_first = np.sort(costs.seconds)[::-1]
    least = max(_by_steps(longest_first, num_ranks, limit), _by_sizes(longest_first, num_ranks))
    return least + costs.agree_s * -(-len(costs) // (num_ranks * limit))


def _by_steps(seconds: FloatArray, num_ranks: int, limit: int) -> float:
    """Order steps by their longest batch. That of step i is at least as long as the longest outside of the i - 1 steps
    before it, which hold W L batches each. Whatever joins it on its rank makes the step longer by as much, and less
    is left for all ranks only by a Wth of that; so let nothing join it. The first k steps then hold k batches that are
    alone and k (W - 1) L others, and what is left takes all ranks at least its share.
    """
    firsts = np.concatenate([[0.0], np.cumsum(seconds[:: num_ranks * limit])])
    before = np.concatenate([[0.0], np.cumsum(seconds)])
    held = np.arange(len(firsts)) * (1 + (num_ranks - 1) * limit)
    left = before[-1] - before[np.minimum(held, len(seconds))]
    return float((firsts + left / num_ranks).max())


def _by_sizes(seconds: FloatArray, num_ranks: int) -> float:
    """Round all times down to multiples of one size: nothing gets longer, and an epoch is then a whole number of
    sizes. So equal batches, for one, need as many rounds as it takes to give every rank one."""
    sizes = np.unique(seconds[seconds > 0])
    chosen = sizes[np.unique(np.linspace(0, len(sizes) - 1, min(len(sizes), SIZES)).astype(np.int64))]
    return max((float(size * -(-np.floor(seconds / size).sum() // num_ranks)) for size in chosen), default=0.0)
