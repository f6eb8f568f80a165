"""When nodes and pairs of nodes had edges: features of nodes and pairs at any snapshot, from edges up to it.

All edges of all snapshots are sorted once. A feature at snapshot t counts times up to t by binary search, so one
structure serves all snapshots and never reads a later one. Common neighbors are found by intersecting sorted rows, the
shorter one searched in the longer one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.ops.runtime.njit import cached_njit
from strobe.ops.runtime.parallel import run_ranges
from strobe.ops.sparse.csr import IntArray

Features = npt.NDArray[np.float32]

SCALES = (4, 16)
"""Numbers of snapshots in which recent edges are counted, besides all snapshots."""

NUM_MEETINGS = 3 + len(SCALES)
"""Features of the meetings of a pair in one direction."""

NUM_COMMON = 3
"""Features of the common neighbors of a pair."""

NUM_ACTIVITY = 3 + len(SCALES)
"""Features of the activity of a node in one direction."""

MAX_HUB_DEGREE = 256
"""Common neighbors with more neighbors than this are not counted: they say little about a pair, and would relate every
node to every other."""

_PART_PAIRS = 4096


@dataclass(frozen=True, eq=False)
class PairTimes:
    """Times of arcs by source, then destination, ascending.

    Args:
        ptr: where the destinations of each source begin, [N + 1].
        col: distinct destinations, ascending per source, [P].
        time_ptr: where the times of each pair begin, [P + 1].
        times: snapshots, ascending per pair, [E].
    """

    ptr: npt.NDArray[np.int64]
    col: npt.NDArray[np.int32]
    time_ptr: npt.NDArray[np.int64]
    times: npt.NDArray[np.int32]

    @classmethod
    def build(cls, src: IntArray, dst: IntArray, times: IntArray, num_nodes: int) -> PairTimes:
        """Sort arcs, which come in order of time."""
        key = src.astype(np.int64) * max(num_nodes, 1) + dst
        order = np.argsort(key, kind="stable")
        key = key[order]
        first = np.flatnonzero(np.diff(key, prepend=-1))
        source, col = np.divmod(key[first], max(num_nodes, 1))
        ptr = np.searchsorted(source, np.arange(num_nodes + 1))
        return cls(ptr, col.astype(np.int32), np.append(first, len(key)), times[order].astype(np.int32))

    def arrays(self) -> tuple[Any, Any, Any, Any]:
        """The arrays, as kernels take them."""
        return self.ptr, self.col, self.time_ptr, self.times

    def first_times(self) -> npt.NDArray[np.int32]:
        """The first time of each pair, ascending per source, [P]."""
        first = self.times[self.time_ptr[:-1]]
        source = np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))
        return first[np.lexsort((first, source))]


@dataclass(frozen=True, eq=False)
class NodeTimes:
    """Times of arcs by one end, ascending: ``times[ptr[v]:ptr[v + 1]]``."""

    ptr: npt.NDArray[np.int64]
    times: npt.NDArray[np.int32]

    @classmethod
    def build(cls, nodes: IntArray, times: IntArray, num_nodes: int) -> NodeTimes:
        """Sort arcs, which come in order of time."""
        order = np.argsort(nodes, kind="stable")
        return cls(np.searchsorted(nodes[order], np.arange(num_nodes + 1)), times[order].astype(np.int32))


class EdgeTimes:
    """All edges of the snapshots of a graph.

    Memory: 12 bytes for each arc of an undirected graph and 28 for each of a directed one, and 12 for each pair and
    direction.

    Args:
        src: sources of arcs, in order of time, both directions of undirected edges.
        dst: their destinations.
        times: their snapshots.
        num_nodes: number of nodes.
        directed: whether the graph is directed.
    """

    def __init__(self, src: IntArray, dst: IntArray, times: IntArray, num_nodes: int, *, directed: bool) -> None:
        self.directed = directed
        self.neighbors: PairTimes
        """Times of arcs in any direction."""
        self._arcs = PairTimes.build(src, dst, times, num_nodes)
        self.neighbors = self._arcs
        self._out = NodeTimes.build(src, times, num_nodes)
        self._in = self._out
        if directed:
            order = np.argsort(np.concatenate([times, times]), kind="stable")
            one, other = np.concatenate([src, dst])[order], np.concatenate([dst, src])[order]
            self.neighbors = PairTimes.build(one, other, np.concatenate([times, times])[order], num_nodes)
            self._in = NodeTimes.build(dst, times, num_nodes)
        self.first_times = self.neighbors.first_times()

    @property
    def num_node_features(self) -> int:
        """Columns of ``node_features``."""
        return NUM_ACTIVITY * (2 if self.directed else 1)

    @property
    def num_pair_features(self) -> int:
        """Columns of ``pair_features``."""
        return NUM_MEETINGS * (2 if self.directed else 1) + NUM_COMMON

    def node_features(self, t: int, nodes: IntArray) -> Features:
        """The activity of nodes up to snapshot t, as sources and, in directed graphs, as destinations: log(1 + edges)
        in snapshot t, in the last ``SCALES`` snapshots and in all; 1 / (1 + snapshots since the last), 0 for never.

        Returns:
            Features, [n, num_node_features].
        """
        out = np.zeros((len(nodes), self.num_node_features), np.float32)
        nodes = np.ascontiguousarray(nodes, np.int64)
        ends = (self._out, self._in) if self.directed else (self._out,)

        def run(first: int, last: int) -> None:
            for k, end in enumerate(ends):
                _activity(first, last, nodes, t, end.ptr, end.times, SCALES, out, k * NUM_ACTIVITY)

        run_ranges(run, len(nodes), _PART_PAIRS)
        return out

    def pair_features(self, t: int, src: IntArray, dst: IntArray) -> Features:
        """The meetings of pairs up to snapshot t and their common neighbors.

        Of meetings, in directed graphs in both directions: 1 if there is one in snapshot t; 1 / (1 + snapshots since
        the last), 0 for never; log(1 + number) in the last ``SCALES`` snapshots and in all. Of common neighbors, along
        edges of any direction in any snapshot so far, without those of more than ``MAX_HUB_DEGREE`` neighbors:
        log(1 + number); the index of Adamic and Adar, the sum of
        1 / log(1 + neighbors of the neighbor); the sum of 1 / sqrt((1 + a) (1 + b)) with the snapshots a and b since
        either end last met it. A pair without any has zeros.

        Returns:
            Features, [n, num_pair_features].
        """
        out = np.zeros((len(src), self.num_pair_features), np.float32)
        src, dst = (np.ascontiguousarray(ends, np.int64) for ends in (src, dst))
        neighbors, column = self.neighbors.arrays(), self.num_pair_features - NUM_COMMON
        self.fill_meetings(t, src, dst, out)

        def run(first: int, last: int) -> None:
            _common_neighbors(first, last, src, dst, t, *neighbors, self.first_times, out, column)

        run_ranges(run, len(src), _PART_PAIRS)
        return out

    def arcs_first_in(
        self, sources: IntArray, since: int, until: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Positions of sources and destinations of the arcs whose first time is ``since`` up to ``until``, [n] each, in
        order of sources, then destinations."""
        ptr, col, time_ptr, times = self._arcs.arrays()
        known = np.flatnonzero(sources < len(ptr) - 1)
        begin, end = ptr[sources[known]], ptr[sources[known] + 1]
        count = end - begin
        pair = np.arange(int(count.sum())) + np.repeat(begin - (np.cumsum(count) - count), count)
        first = times[time_ptr[pair]]
        chosen = (first >= since) & (first <= until)
        return np.repeat(known, count)[chosen], col[pair[chosen]].astype(np.int64)

    def fill_meetings(self, t: int, src: IntArray, dst: IntArray, out: Features) -> None:
        """Fill the columns of ``pair_features`` that are about meetings."""
        src, dst = (np.ascontiguousarray(ends, np.int64) for ends in (src, dst))
        arcs = self._arcs.arrays()

        def run(first: int, last: int) -> None:
            _meetings(first, last, src, dst, t, *arcs, SCALES, out, 0)
            if self.directed:
                _meetings(first, last, dst, src, t, *arcs, SCALES, out, NUM_MEETINGS)

        run_ranges(run, len(src), _PART_PAIRS)


@cached_njit
def count_until(times: Any, first: int, last: int, t: int) -> int:
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
def _find(values: Any, first: int, last: int, wanted: int) -> int:
    """The position of a value among ``values[first:last]``, which ascend; -1 if it is absent."""
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < last and values[low] == wanted else -1


@cached_njit
def _activity(
    first: int, last: int, nodes: Any, t: int, ptr: Any, times: Any, scales: Any, out: Any, column: int
) -> None:
    for i in range(first, last):
        node = nodes[i]
        if node + 1 >= len(ptr):
            continue
        begin = ptr[node]
        count = count_until(times, begin, ptr[node + 1], t)
        if count == 0:
            continue
        end = begin + count
        out[i, column] = np.log1p(count - count_until(times, begin, end, t - 1))
        for k in range(len(scales)):
            out[i, column + 1 + k] = np.log1p(count - count_until(times, begin, end, t - scales[k]))
        out[i, column + 1 + len(scales)] = np.log1p(count)
        out[i, column + 2 + len(scales)] = 1 / (1.0 + t - times[end - 1])


@cached_njit
def _meetings(
    first: int,
    last: int,
    src: Any,
    dst: Any,
    t: int,
    ptr: Any,
    col: Any,
    time_ptr: Any,
    times: Any,
    scales: Any,
    out: Any,
    column: int,
) -> None:
    for i in range(first, last):
        node = src[i]
        if node + 1 >= len(ptr):
            continue
        pair = _find(col, ptr[node], ptr[node + 1], dst[i])
        if pair < 0:
            continue
        begin = time_ptr[pair]
        count = count_until(times, begin, time_ptr[pair + 1], t)
        if count == 0:
            continue
        end = begin + count
        since = t - times[end - 1]
        out[i, column] = 1.0 if since == 0 else 0.0
        out[i, column + 1] = 1 / (1.0 + since)
        for k in range(len(scales)):
            out[i, column + 2 + k] = np.log1p(count - count_until(times, begin, end, t - scales[k]))
        out[i, column + 2 + len(scales)] = np.log1p(count)


@cached_njit
def _common_neighbors(
    first: int,
    last: int,
    src: Any,
    dst: Any,
    t: int,
    ptr: Any,
    col: Any,
    time_ptr: Any,
    times: Any,
    first_times: Any,
    out: Any,
    column: int,
) -> None:
    for i in range(first, last):
        short, long = src[i], dst[i]
        if short + 1 >= len(ptr) or long + 1 >= len(ptr):
            continue
        if ptr[short + 1] - ptr[short] > ptr[long + 1] - ptr[long]:
            short, long = long, short
        number, adamic_adar, recent = 0, 0.0, 0.0
        low = ptr[long]
        for p in range(ptr[short], ptr[short + 1]):
            q = _find(col, low, ptr[long + 1], col[p])
            if q < 0:
                continue
            low = q + 1
            count_p = count_until(times, time_ptr[p], time_ptr[p + 1], t)
            count_q = count_until(times, time_ptr[q], time_ptr[q + 1], t)
            if count_p == 0 or count_q == 0:
                continue
            other = col[p]
            degree = count_until(first_times, ptr[other], ptr[other + 1], t)
            if degree > MAX_HUB_DEGREE:
                continue
            number += 1
            adamic_adar += 1 / np.log(1.0 + degree)
            since_p, since_q = t - times[time_ptr[p] + count_p - 1], t - times[time_ptr[q] + count_q - 1]
            recent += 1 / np.sqrt((1.0 + since_p) * (1.0 + since_q))
        out[i, column] = np.log1p(number)
        out[i, column + 1] = adamic_adar
        out[i, column + 2] = recent
