"""Things in a row cut into consecutive blocks of even load."""

from __future__ import annotations

import numpy as np

from strobe.ops.csr import IntArray
from strobe.placement.base import even


def cut(loads: IntArray, num_blocks: int) -> IntArray:
    """The block of each of the things in a row, [T]: no other cuts have a smaller largest block.

    Nor are two neighbours ever more even if the cut between them moves. No block is empty where there are enough
    things.
    """
    if loads.size <= num_blocks:
        return even(loads.size, num_blocks)
    before = np.concatenate(([0], np.cumsum(loads, dtype=np.int64)))
    cuts = _within(before, num_blocks, _smallest_limit(before, num_blocks))
    while _evened(cuts, before):
        pass
    return np.repeat(np.arange(num_blocks), np.diff(cuts))


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


def _within(before: IntArray, num_blocks: int, limit: int) -> list[int]:
    """Where blocks begin and the last one ends: each takes about an even share of what is left, but not so little
    that those behind it cannot stay within the limit, nor so much that one of them is empty."""
    reach = _reach(before, num_blocks, limit)
    cuts = [0]
    for behind in range(num_blocks - 1, 0, -1):
        start = cuts[-1]
        earliest = max(start + 1, reach[behind])
        latest = min(before.size - 1 - behind, int(np.searchsorted(before, before[start] + limit, "right")) - 1)
        share = before[start] + (before[-1] - before[start]) / (behind + 1)
        ends = np.arange(earliest, latest + 1)
        cuts.append(int(ends[np.abs(before[ends] - share).argmin()]))
    return [*cuts, before.size - 1]


def _evened(cuts: list[int], before: IntArray) -> bool:
    """Moves every cut to where the blocks on both sides are most even; whether one moved. No block becomes larger
    than the larger of both was."""
    moved = False
    for at in range(1, len(cuts) - 1):
        first, last = cuts[at - 1], cuts[at + 1]
        apart = np.abs(2 * before[first + 1 : last] - before[first] - before[last])
        best = first + 1 + int(apart.argmin())
        if apart[best - first - 1] < apart[cuts[at] - first - 1]:
            cuts[at], moved = best, True
    return moved
