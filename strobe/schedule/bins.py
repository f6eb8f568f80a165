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

EXCHANGES = 20
"""Exchanges per rank that even out an epoch, at most."""

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

    Who has which bin of a step does not matter to the length; bins are given so that ranks are even over the epoch.
    """
    loads = np.array([costs.seconds[batches].sum() for batches in bins])
    order = sorted(range(len(bins)), key=lambda b: (-loads[b], bins[b]))
    runs = [order[first : first + num_ranks] for first in range(0, len(order), num_ranks)]
    runs.sort(key=lambda run: float(np.mean([batch for b in run for batch in bins[b]])))
    given = _given([loads[run] for run in runs], num_ranks)
    return [
        [sorted(bins[run[k]]) if k < len(run) else [] for k in ranks] for run, ranks in zip(runs, given, strict=True)
    ]


def _given(steps: Sequence[FloatArray], num_ranks: int) -> list[list[int]]:
    """For every step and rank the number of its bin in the step, of those beyond the last it has none.

    At first the longest goes to the rank that had least so far; then the fullest rank and the emptiest exchange what
    they have in one step, as long as that brings them nearer to each other.
    """
    load = np.zeros((len(steps), num_ranks))
    bins = np.zeros((len(steps), num_ranks), np.int64)
    total = np.zeros(num_ranks)
    for number, step in enumerate(steps):
        ranks = np.argsort(total, kind="stable")
        bins[number, ranks] = np.arange(num_ranks)
        load[number, ranks[: len(step)]] = step
        total += load[number]
    for _ in range(EXCHANGES * num_ranks if len(steps) else 0):
        full, empty = int(total.argmax()), int(total.argmin())
        apart = total[full] - total[empty]
        more = load[:, full] - load[:, empty]
        number = int(np.abs(apart - 2 * more).argmin())
        if abs(apart - 2 * more[number]) >= apart * (1 - SAME):
            break
        for each in (load, bins):
            each[number, [full, empty]] = each[number, [empty, full]]
        total[[full, empty]] += [-more[number], more[number]]
    return bins.tolist()


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
