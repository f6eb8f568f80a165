"""Things in a row cut into consecutive blocks of even load."""

from __future__ import annotations

import numpy as np

from strobe.ops.csr import IntArray
from strobe.placement.base import even


def cut(loads: IntArray, num_blocks: int) -> IntArray:
    """The block of each of the things in a row, [T]: no other cuts have a smaller largest block.

    Among such cuts those are taken that leave every block as near as can be to an even share of what is left. No
    block is empty where there are enough things.
    """
    if loads.size <= num_blocks:
        return even(loads.size, num_blocks)
    before = np.concatenate(([0], np.cumsum(loads, dtype=np.int64)))
    starts = _starts(before, num_blocks, _smallest_limit(before, num_blocks))
    return np.repeat(np.arange(num_blocks), np.diff([*starts, loads.size]))


def _smallest_limit(before: IntArray, num_blocks: int) -> int:
    """The smallest load that all blocks can stay within."""
    low = int(np.diff(before).max())
    high = int(before[-1])
    while low < high:
        middle = (low + high) // 2
        if _reach(before, num_blocks, middle)[-1] == 0:
            high = middle
        else:
            low = middle + 1
    return low


def _reach(before: IntArray, num_blocks: int, limit: int) -> list[int]:
    """How far to the front the last 0, 1, … ``num_blocks`` blocks can reach within a limit."""
    firsts = [before.size - 1]
    for _ in range(num_blocks):
        firsts.append(int(np.searchsorted(before, before[firsts[-1]] - limit)))
    return firsts


def _starts(before: IntArray, num_blocks: int, limit: int) -> list[int]:
    """Where blocks begin: each ends nearest to its even share, but not so early that those behind it cannot stay
    within the limit, nor so late that one of them is empty."""
    reach = _reach(before, num_blocks, limit)
    starts = [0]
    for behind in range(num_blocks - 1, 0, -1):
        start = starts[-1]
        earliest = max(start + 1, reach[behind])
        latest = min(before.size - 1 - behind, int(np.searchsorted(before, before[start] + limit, "right")) - 1)
        share = before[start] + (before[-1] - before[start]) / (behind + 1)
        ends = np.arange(earliest, latest + 1)
        starts.append(int(ends[np.abs(before[ends] - share).argmin()]))
    return starts
