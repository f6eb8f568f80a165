"""When pairs of nodes and single nodes had arcs, in lists that snapshots are appended to as they arrive."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.ops.runtime.njit import cached_njit

Ints = npt.NDArray[np.int64]

_ROOM = 4
"""Minimum capacity of a list that is moved for the first time, in entries."""


class TimeLists:
    """A list of ascending entries (time, total) per item.

    A list is a block of two shared arrays. A full block moves to their end with twice its room; full arrays are copied,
    without the blocks that have moved, into larger ones. So an entry costs constant time, whatever was there before.

    Memory: 8 bytes per entry of lists that were appended to once, 8 to 32 of others, and 20 per item.
    """

    def __init__(self) -> None:
        self.begin = np.empty(0, np.int64)
        """Where the list of each item begins."""
        self.size = np.empty(0, np.int64)
        """Entries of each list."""
        self._room = np.empty(0, np.int32)
        self.times = np.empty(0, np.int32)
        self.totals = np.empty(0, np.int32)
        self._used = 0

    def __len__(self) -> int:
        return len(self.begin)

    def arrays(self) -> tuple[Any, Any, Any, Any]:
        """The arrays, as kernels take them."""
        return self.begin, self.size, self.times, self.totals

    def insert_items(self, places: Ints) -> None:
        """Insert items with empty lists before the given items."""
        for name in ("begin", "size", "_room"):
            setattr(self, name, np.insert(getattr(self, name), places, 0))

    def append_counts(self, items: Ints, entries: Ints, times: Ints, counts: Ints) -> None:
        """Append to lists.

        Args:
            items: ascending and distinct, [k].
            entries: number of new entries of each, [k].
            times: times of the entries, by item, later than those known, [n].
            counts: what each adds to the total of the item, [n].
        """
        self._make_room(items, entries)
        size = self.size[items]
        last = self.begin[items] + size
        before = np.where(size > 0, self.totals[last - 1] if len(self.totals) else 0, 0)
        to = _ranges(last, entries)
        summed, first = np.cumsum(counts), np.cumsum(entries) - entries
        before = before - np.append(0, summed)[first]
        self.times[to] = times
        self.totals[to] = summed + np.repeat(before, entries)
        self.size[items] += entries

    def append_runs(self, items: Ints, entries: Ints, starts: Ints, lengths: Ints) -> None:
        """Append runs of consecutive times: entries (start, total at the end). A run that begins when the last one of
        its list has ended prolongs it.

        Args:
            items: ascending and distinct, [k].
            entries: number of new runs of each, at least 1, [k].
            starts: first times of the runs, by item, [n].
            lengths: lengths of the runs, [n].
        """
        first = np.cumsum(entries) - entries
        size, end = self.size[items], self.begin[items] + self.size[items]
        known = np.flatnonzero(size)
        last = end[known] - 1
        before = np.where(size[known] > 1, self.totals[last - 1] if len(self.totals) else 0, 0)
        goes_on = self.times[last] + self.totals[last] - before == starts[first[known]]
        joined = known[goes_on]
        self.totals[last[goes_on]] += lengths[first[joined]].astype(np.int32)
        keep = np.ones(len(starts), bool)
        keep[first[joined]] = False
        entries = entries.copy()
        entries[joined] -= 1
        some = entries > 0
        self.append_counts(items[some], entries[some], starts[keep], lengths[keep])

    def _make_room(self, items: Ints, entries: Ints) -> None:
        size = self.size[items]
        is_full = size + entries > self._room[items]
        moved, size, entries = items[is_full], size[is_full], entries[is_full]
        room = np.where(size == 0, entries, np.maximum(size + entries, np.maximum(2 * size, _ROOM)))
        needed = int(room.sum())
        if self._used + needed > len(self.times):
            self._copy_blocks(needed)
        begin = self._used + np.cumsum(room) - room
        source, to = _ranges(self.begin[moved], size), _ranges(begin, size)
        self.times[to], self.totals[to] = self.times[source], self.totals[source]
        self.begin[moved], self._room[moved] = begin, room
        self._used += needed

    def _copy_blocks(self, needed: int) -> None:
        """Copy all blocks, without gaps, to arrays with room for ``needed`` more entries."""
        used = int(self._room.sum())
        source = _ranges(self.begin, self.size)
        self.begin = np.cumsum(self._room, dtype=np.int64) - self._room
        to = _ranges(self.begin, self.size)
        for name in ("times", "totals"):
            larger = np.empty(max(used + needed, used + used // 2), np.int32)
            larger[to] = getattr(self, name)[source]
            setattr(self, name, larger)
        self._used = used


def _ranges(begin: Ints, size: Ints) -> Ints:
    """The numbers ``begin[k] … begin[k] + size[k] - 1`` of all k."""
    before = np.cumsum(size) - size
    numbers: Ints = np.arange(int(size.sum())) + np.repeat(begin - before, size)
    return numbers


@cached_njit
def num_until(times: Any, first: int, last: int, t: int) -> int:
    """The number of times up to t among ``times[first:last]``, which ascend."""
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if times[middle] <= t:
            low = middle + 1
        else:
            high = middle
    return low - first


@cached_njit
def count_until(times: Any, totals: Any, first: int, last: int, t: int) -> int:
    """The total at t of the entries ``first`` up to ``last``."""
    number = num_until(times, first, last, t)
    return totals[first + number - 1] if number else 0


@cached_njit
def count_runs_until(times: Any, totals: Any, first: int, last: int, t: int) -> int:
    """The number of times up to t in the runs ``first`` up to ``last``."""
    number = num_until(times, first, last, t)
    if number == 0:
        return 0
    at = first + number - 1
    before = totals[at - 1] if number > 1 else 0
    count: int = min(before + t - times[at] + 1, totals[at])
    return count


@cached_njit
def last_until(times: Any, totals: Any, first: int, last: int, t: int) -> int:
    """The last time up to t in the runs ``first`` up to ``last``; -1 for none."""
    number = num_until(times, first, last, t)
    if number == 0:
        return -1
    at = first + number - 1
    before = totals[at - 1] if number > 1 else 0
    last_time: int = min(t, times[at] + totals[at] - before - 1)
    return last_time


class PairTimes:
    """Times of arcs by source, then destination: 8 bytes for each run of consecutive snapshots, 24 for each pair.

    Attributes:
        ptr: where the destinations of each source begin, [N + 1].
        col: distinct destinations, ascending per source, [P].
        runs: runs of the snapshots of each pair.
    """

    def __init__(self) -> None:
        self.ptr = np.zeros(1, np.int64)
        self.col = np.empty(0, np.int32)
        self.runs = TimeLists()

    def append(self, src: Ints, dst: Ints, times: Ints, num_nodes: int) -> tuple[Ints, Ints]:
        """Append arcs of snapshots after all known ones. Costs their sort, and a copy of the pairs if any is new.

        Args:
            src: sources of arcs, [n].
            dst: their destinations, [n].
            times: their snapshots, [n].
            num_nodes: number of nodes of the graph by now.

        Returns:
            Sources and first times of the pairs that are new.
        """
        size = max(num_nodes, 1)
        key, times = sort_by_key(src * size + dst, times)
        is_other, step = np.diff(key, prepend=-1) != 0, np.diff(times, prepend=-1)
        once = is_other | (step != 0)  # an arc and its reverse are one
        key, times, is_other = key[once], times[once], is_other[once]
        start = np.flatnonzero(is_other | (np.diff(times, prepend=-1) != 1))
        pair = np.flatnonzero(is_other[start])
        at, is_new = self._add_pairs(key[start[pair]], size)
        entries, lengths = np.diff(pair, append=len(start)), np.diff(start, append=len(key))
        self.runs.append_runs(at, entries, times[start], lengths)
        new = start[pair[is_new]]
        return key[new] // size, times[new]

    def _add_pairs(self, keys: Ints, num_nodes: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Add the pairs that are new; return the positions of all of them, and which are new. Keys ascend."""
        rows = np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))
        known = rows * num_nodes + self.col
        place = np.searchsorted(known, keys)
        is_new = known[np.minimum(place, len(known) - 1)] != keys if len(known) else np.ones(len(keys), bool)
        source, col = np.divmod(keys[is_new], num_nodes)
        self.ptr = np.pad(self.ptr, (0, num_nodes + 1 - len(self.ptr)), mode="edge")
        if len(col):
            self.ptr[1:] += np.cumsum(np.bincount(source, minlength=num_nodes))
            self.col = np.insert(self.col, place[is_new], col)
            self.runs.insert_items(place[is_new])
        at: Ints = place + np.cumsum(is_new) - is_new
        return at, is_new

    def arrays(self) -> tuple[Any, Any, Any, Any, Any, Any]:
        """The arrays, as kernels take them."""
        return self.ptr, self.col, *self.runs.arrays()


class NodeTimes(TimeLists):
    """Numbers of arcs by one end: per node the snapshots with arcs, and the number of arcs up to each of them."""

    def append(self, nodes: Ints, times: Ints, num_nodes: int) -> None:
        """Append arcs of snapshots after all known ones."""
        self.insert_items(np.full(num_nodes - len(self), len(self)))
        if not len(nodes):
            return
        node, time = sort_by_key(nodes, times)
        start = np.flatnonzero((np.diff(node, prepend=-1) != 0) | (np.diff(time, prepend=-1) != 0))
        node, time, number = node[start], time[start], len(node)
        item = np.flatnonzero(np.diff(node, prepend=-1))
        entries, counts = np.diff(item, append=len(start)), np.diff(start, append=number)
        self.append_counts(node[item], entries, time, counts)


def sort_by_key(key: Ints, times: Ints) -> tuple[Ints, Ints]:
    """Keys and times, by key, then time; sorted as one number where it fits."""
    if not len(key) or (len(key) > 1 and not (np.diff(times).any() or (np.diff(key) < 0).any())):
        return key, times
    first, span = int(times.min()), int(np.ptp(times)) + 1
    if (int(key.max()) + 1) * span > np.iinfo(np.int64).max:
        order = np.lexsort((times, key))
        return key[order], times[order]
    ordered = np.sort(key * span + (times - first))
    key, times = np.divmod(ordered, span)
    return key, times + first
