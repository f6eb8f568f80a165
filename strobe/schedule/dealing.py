"""Long batches with short ones, all at once."""

from __future__ import annotations

import numpy as np

from strobe.ops.csr import FloatArray, IntArray

DEALS = 24
"""Numbers of bins, and of batches that stay alone, that are tried at most."""


def dealt(seconds: FloatArray, num_ranks: int, limit: int) -> list[IntArray]:
    """For batches, longest first, several ways to deal them out: the number of the bin of every batch, [B].

    Into more or fewer bins, whole steps of them; or the longest stay alone and the others have as few as they can.
    """
    num = len(seconds)
    least, most = -(-num // (num_ranks * limit)), -(-num // num_ranks)
    ways = [_deal(seconds, steps * num_ranks) for steps in _some(least, most)]
    for alone in _some(1, most - 1):
        first = alone * num_ranks
        steps = -(-(num - first) // (num_ranks * limit))
        others = first + _deal(seconds[first:], steps * num_ranks)
        ways.append(np.concatenate([np.arange(first), others]))
    return ways


def _some(first: int, last: int) -> list[int]:
    """Of the numbers from first to last, DEALS at most, about evenly."""
    if last < first:
        return []
    return [int(number) for number in np.linspace(first, last, min(last - first + 1, DEALS))]


def _deal(seconds: FloatArray, num_bins: int) -> IntArray:
    """In every round each bin gets one batch; the longest goes where there is least."""
    numbers = np.empty(len(seconds), np.int64)
    loads = np.zeros(num_bins)
    for first in range(0, len(seconds), num_bins):
        part = seconds[first : first + num_bins]
        bins = np.argsort(loads, kind="stable")[: len(part)]
        numbers[first : first + num_bins] = bins
        loads[bins] += part
    return numbers
