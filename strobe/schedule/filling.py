"""Steps that are filled one after the other, each up to a time that wastes least.

Batches are sorted, longest first, and told by their place in that order.
"""

from __future__ import annotations

import numpy as np

from strobe.ops.compiled import compiled
from strobe.ops.csr import FloatArray, IntArray

TARGETS = 128
"""Lengths of a step that are tried at most, for every number of batches that may join the longest."""


def fill(seconds: FloatArray, num_ranks: int, limit: int, agree_s: float, relative: bool) -> IntArray:
    """The number of the bin of every batch, [B]. What a step wastes counts in seconds, or, if ``relative``, as a part
    of what it does."""
    numbers: IntArray = _fill(seconds, num_ranks, limit, float(agree_s), relative, TARGETS)
    return numbers


@compiled
def _fill(
    seconds: FloatArray, num_ranks: int, limit: int, agree_s: float, relative: bool, num_targets: int
) -> IntArray:
    numbers = np.empty(len(seconds), np.int64)
    left = np.arange(len(seconds))  # places that are in no step yet
    times = seconds.copy()  # their seconds
    mark, link = np.zeros(len(seconds), np.int64), np.empty(len(seconds), np.int64)
    bins, best = np.empty(num_ranks * limit, np.int64), np.empty(num_ranks * limit, np.int64)
    tries, num_bins = 0, 0
    while len(left):
        least = np.inf
        stride = max(1, (len(left) - 1 + num_targets - 1) // num_targets)
        for joined in range(limit):
            for partner in range(1, max(2, len(left)), stride):
                if joined > 0 and partner >= len(left):
                    break
                target = times[0] if joined == 0 else times[0] + joined * times[partner]
                tries += 1
                longest, work = _fill_step(times, num_ranks, limit, target, bins, mark, link, tries)
                waste = num_ranks * (longest + agree_s) - work
                if relative:
                    waste /= max(work, 1e-300)
                if waste < least:
                    least = waste
                    best[:] = bins
                if joined == 0:
                    break
        tries += 1
        for at in range(len(best)):
            if best[at] >= 0:
                numbers[left[best[at]]] = num_bins + at // limit
                mark[best[at]] = tries
        num_bins += num_ranks
        keep = mark[: len(left)] != tries
        left, times = left[keep], times[keep]
    return numbers


@compiled
def _fill_step(
    times: FloatArray,
    num_ranks: int,
    limit: int,
    target: float,
    bins: IntArray,
    mark: IntArray,
    link: IntArray,
    now: int,
) -> tuple[float, float]:
    """Fills the bins of a step, none above the target; gives the longest, and all together. Every rank takes the
    longest batch that is left and then, as long as it may, the longest that still fits."""
    bins[:] = -1
    longest, work = 0.0, 0.0
    for rank in range(num_ranks):
        load = 0.0
        for slot in range(limit):
            start = 0 if slot == 0 else first_within(times, load, target)
            at = _next_left(start, len(times), mark, link, now)
            if at == len(times):
                break
            mark[at], link[at] = now, at + 1
            bins[rank * limit + slot] = at
            load += times[at]
        longest = max(longest, load)
        work += load
    return longest, work


@compiled
def first_within(times: FloatArray, load: float, target: float) -> int:
    """The first place of a batch that may join the load and not lead it above the target. (Added, not subtracted: sums
    must meet to the last digit.)"""
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2
        if load + times[middle] <= target:
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def _next_left(start: int, end: int, mark: IntArray, link: IntArray, now: int) -> int:
    """The first place from start on that has not been taken now. Links over taken ones are shortened on the way."""
    at = start
    while at < end and mark[at] == now:
        at = link[at]
    while start < at:
        following = link[start]
        link[start] = at
        start = following
    return at
