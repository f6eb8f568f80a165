"""Greedy kernels: fill steps one after the other, each up to the target length with the least idle time.

Batches are sorted, longest first, and identified by their position in that order.
"""

from __future__ import annotations

import numpy as np

from strobe.ops.runtime.njit import cached_njit
from strobe.ops.sparse.csr import FloatArray, IntArray

MAX_TARGETS = 128
"""Most target lengths of a step, for every number of batches that join the longest."""


def fill_steps(seconds: FloatArray, num_ranks: int, limit: int, sync_s: float, relative: bool) -> IntArray:
    """Return the bin of every batch, [B]. The idle time of a step counts in seconds or relative to its work."""
    numbers: IntArray = _fill_all_steps(seconds, num_ranks, limit, float(sync_s), relative, MAX_TARGETS)
    return numbers


@cached_njit
def _fill_all_steps(
    seconds: FloatArray, num_ranks: int, limit: int, sync_s: float, relative: bool, num_targets: int
) -> IntArray:
    numbers = np.empty(len(seconds), np.int64)
    left = np.arange(len(seconds))  # positions that are in no step yet
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
                waste = num_ranks * (longest + sync_s) - work
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


@cached_njit
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
    """Fill the bins of a step up to the target; return the longest load and their sum. Every rank takes the longest
    remaining batch and then, up to the limit, the longest that still fits."""
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


@cached_njit
def first_within(times: FloatArray, load: float, target: float) -> int:
    """Return the first position of a batch that fits: load + seconds <= target. (No subtraction: sums must agree to
    the last digit.)"""
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2
        if load + times[middle] <= target:
            high = middle
        else:
            low = middle + 1
    return low


@cached_njit
def _next_left(start: int, end: int, mark: IntArray, link: IntArray, now: int) -> int:
    """Return the first position from start on that is not taken; shorten links over taken positions."""
    at = start
    while at < end and mark[at] == now:
        at = link[at]
    while start < at:
        following = link[start]
        link[start] = at
        start = following
    return at
