"""When pairs of nodes and single nodes had arcs; snapshots are appended as they arrive."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.ops.graph.time_lists import Ints, TimeLists


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
