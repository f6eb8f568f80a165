"""When nodes and pairs of nodes had edges: features of nodes and pairs at any snapshot, from edges up to it.

The times of a pair are runs of consecutive snapshots, those of a node totals. A feature at snapshot t finds the times
up to t by binary search, so one structure serves all snapshots, also while snapshots are appended, and never reads a
later one. Common neighbors are found by intersecting sorted rows, the shorter one searched in the longer one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.ops import native
from strobe.ops.graph.arc_times import NodeTimes, PairTimes, count_runs_until, count_until, last_until, num_until
from strobe.ops.runtime.njit import cached_njit
from strobe.ops.runtime.parallel import run_ranges
from strobe.ops.sparse.csr import IntArray

Features = npt.NDArray[np.float32]

SCALES = (4, 16)
"""Numbers of snapshots in which recent edges are counted, besides all snapshots."""

_SCALES = np.array(SCALES, np.int64)

NUM_MEETINGS = 3 + len(SCALES)
"""Features of the meetings of a pair in one direction."""

NUM_COMMON = 3
"""Features of the common neighbors of a pair."""

NUM_ACTIVITY = 3 + len(SCALES)
"""Features of the activity of a node in one direction."""

MAX_HUB_DEGREE = 256
"""Common neighbors with more neighbors than this are not counted: they say little about a pair, and would relate every
node to every other."""

NEIGHBOR_BYTES = 1 << 26
"""Bytes of neighbors at several snapshots that are kept; always those at one."""

_PART_PAIRS = 4096


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Neighbors of all nodes up to a snapshot.

    Args:
        ptr: where the neighbors of each node begin, [N + 1].
        col: neighbors, ascending per node, [n].
        recency: 1 / sqrt(1 + snapshots since the last edge), [n].
    """

    ptr: npt.NDArray[np.int64]
    col: npt.NDArray[np.int32]
    recency: npt.NDArray[np.float64]

    def arrays(self) -> tuple[Any, Any, Any]:
        """The arrays, as kernels take them."""
        return self.ptr, self.col, self.recency

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return int(sum(each.nbytes for each in self.arrays()))


class EdgeTimes:
    """All edges of the snapshots of a graph, which are appended.

    Memory of an undirected graph: 8 bytes for each node and snapshot with edges and for each run of consecutive
    snapshots of a pair and direction, and 24 for each pair and direction; of a directed one about three times as much.
    While snapshots are appended one by one up to four times as much. Features of pairs at a snapshot take 12 more for
    each pair.

    Args:
        directed: whether the graph is directed.
    """

    def __init__(self, *, directed: bool) -> None:
        self.directed = directed
        self.neighbors = self.arcs = PairTimes()
        """Times of arcs in any direction, and of arcs."""
        self._out = self._in = NodeTimes()
        self.degrees = NodeTimes()
        """Numbers of neighbors."""
        if directed:
            self.neighbors, self._in = PairTimes(), NodeTimes()
        self._neighbors_at: dict[int, Neighbors] = {}
        self._longest_row: int | None = None

    @property
    def num_nodes(self) -> int:
        """Nodes that are known."""
        return len(self._out)

    @property
    def num_pairs(self) -> int:
        """Pairs with an edge so far."""
        return len(self.arcs.col)

    def append(self, src: IntArray, dst: IntArray, times: IntArray, num_nodes: int) -> None:
        """Append snapshots after all known ones.

        Args:
            src: sources of arcs, both directions of undirected edges.
            dst: their destinations.
            times: their snapshots.
            num_nodes: number of nodes of the graph by now.
        """
        src, dst, times = (np.asarray(each, np.int64) for each in (src, dst, times))
        num_nodes = max(num_nodes, self.num_nodes)
        self._neighbors_at, self._longest_row = {}, None
        new = self.arcs.append(src, dst, times, num_nodes)
        self._out.append(src, times, num_nodes)
        if self.directed:
            self._in.append(dst, times, num_nodes)
            one, other = np.concatenate([src, dst]), np.concatenate([dst, src])
            new = self.neighbors.append(one, other, np.concatenate([times, times]), num_nodes)
        self.degrees.append(*new, num_nodes)

    def neighbors_at(self, t: int) -> Neighbors:
        """The neighbors of all nodes up to snapshot t. Costs a pass over all pairs; small graphs keep some of them."""
        known = self._neighbors_at.get(t)
        if known is None:
            known = self._find_neighbors(t)
            others = NEIGHBOR_BYTES // max(known.nbytes, 1) - 1
            kept = list(self._neighbors_at.items())[-others:] if others > 0 else []
            self._neighbors_at = dict([*kept, (t, known)])  # other threads may read
        return known

    def _find_neighbors(self, t: int) -> Neighbors:
        ptr, col, runs = self.neighbors.ptr, self.neighbors.col, self.neighbors.runs.arrays()
        recency = np.empty(len(col), np.float64)

        def run(first: int, last: int) -> None:
            if native.library() is None:
                _recency(first, last, t, *runs, recency)
            else:
                native.run("recencies_at", first, last, t, *runs, recency)

        run_ranges(run, len(col), _PART_PAIRS)
        has_met = recency > 0
        return Neighbors(np.append(0, np.cumsum(has_met))[ptr], col[has_met], recency[has_met])

    @property
    def longest_row(self) -> int:
        """The most neighbors that any node ever has, at least 1."""
        if self._longest_row is None:
            self._longest_row = int(np.diff(self.neighbors.ptr).max(initial=1))
        return self._longest_row

    @property
    def activity_lists(self) -> tuple[NodeTimes, ...]:
        """Times of arcs by source and, in directed graphs, by destination."""
        return (self._out, self._in) if self.directed else (self._out,)

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
        at, ids = np.full(len(nodes), t, np.int32), np.ascontiguousarray(nodes, np.int64)
        self.fill_activity(ids, at, out)
        return out

    def fill_activity(
        self, nodes: npt.NDArray[np.int64], at: npt.NDArray[np.int32], out: Features, *, plain: bool = False
    ) -> None:
        """Fill ``node_features``, which are 0, each node's at its snapshot; ``plain``: without a kernel."""
        arrays = [lists.arrays() for lists in self.activity_lists]
        compiled = native.library() is not None and not plain

        def run(first: int, last: int) -> None:
            for k, lists in enumerate(arrays):
                if compiled:
                    sizes = len(lists[0]), *lists, len(SCALES), _SCALES, out, out.shape[1]
                    native.run("node_activity", first, last, nodes, at, *sizes, k * NUM_ACTIVITY)
                else:
                    _node_activity(first, last, nodes, at, *lists, SCALES, out, k * NUM_ACTIVITY)

        run_ranges(run, len(nodes), _PART_PAIRS)

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
        neighbors, column = self.neighbors_at(t).arrays(), self.num_pair_features - NUM_COMMON
        self.fill_meetings(t, src, dst, out, plain=True)

        def run(first: int, last: int) -> None:
            _common_neighbors(first, last, src, dst, *neighbors, out, column)

        run_ranges(run, len(src), _PART_PAIRS)
        return out

    def arcs_first_in(
        self, sources: IntArray, since: int, until: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Positions of sources and destinations of the arcs whose first time is ``since`` up to ``until``, [n] each, in
        order of sources, then destinations."""
        ptr, col, runs_begin, _, times, _ = self.arcs.arrays()
        known = np.flatnonzero(sources < len(ptr) - 1)
        begin, end = ptr[sources[known]], ptr[sources[known] + 1]
        count = end - begin
        pair = np.arange(int(count.sum())) + np.repeat(begin - (np.cumsum(count) - count), count)
        first = times[runs_begin[pair]]
        chosen = (first >= since) & (first <= until)
        return np.repeat(known, count)[chosen], col[pair[chosen]].astype(np.int64)

    def fill_meetings(
        self, t: int | IntArray, src: IntArray, dst: IntArray, out: Features, *, plain: bool = False
    ) -> None:
        """Fill the columns of ``pair_features`` that are about meetings, which are 0; t may differ from pair to pair.
        ``plain``: without a kernel."""
        src, dst = (np.ascontiguousarray(ends, np.int64) for ends in (src, dst))
        arcs, at = self.arcs.arrays(), np.full(len(src), t, np.int32)
        compiled = native.library() is not None and not plain

        def run(first: int, last: int) -> None:
            for k, ends in enumerate(((src, dst), (dst, src)) if self.directed else ((src, dst),)):
                if compiled:
                    sizes = len(arcs[0]) - 1, *arcs, len(SCALES), _SCALES, out, out.shape[1]
                    native.run("fill_meetings", first, last, *ends, at, *sizes, k * NUM_MEETINGS)
                else:
                    _meetings(first, last, *ends, at, *arcs, SCALES, out, k * NUM_MEETINGS)

        run_ranges(run, len(src), _PART_PAIRS)


@cached_njit
def find_column(values: Any, first: int, last: int, wanted: int) -> int:
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
def _recency(first: int, last: int, t: int, begin: Any, size: Any, times: Any, totals: Any, out: Any) -> None:
    for pair in range(first, last):
        latest = last_until(times, totals, begin[pair], begin[pair] + size[pair], t)
        out[pair] = 1 / np.sqrt(1.0 + t - latest) if latest >= 0 else 0.0


@cached_njit
def _node_activity(
    first: int,
    last: int,
    nodes: Any,
    at: Any,
    begin: Any,
    size: Any,
    times: Any,
    totals: Any,
    scales: Any,
    out: Any,
    column: int,
) -> None:
    """Fill the features of ``EdgeTimes.node_features`` in one direction, each node's at its snapshot ``at``."""
    for i in range(first, last):
        node, t = nodes[i], at[i]
        if node >= len(begin):
            continue
        start = begin[node]
        number = num_until(times, start, start + size[node], t)
        if number == 0:
            continue
        end = start + number
        count = totals[end - 1]
        out[i, column] = np.log1p(count - count_until(times, totals, start, end, t - 1))
        for k in range(len(scales)):
            out[i, column + 1 + k] = np.log1p(count - count_until(times, totals, start, end, t - scales[k]))
        out[i, column + 1 + len(scales)] = np.log1p(count)
        out[i, column + 2 + len(scales)] = 1 / (1.0 + t - times[end - 1])


@cached_njit
def _meetings(
    first: int,
    last: int,
    src: Any,
    dst: Any,
    at: Any,
    ptr: Any,
    col: Any,
    begin: Any,
    size: Any,
    times: Any,
    totals: Any,
    scales: Any,
    out: Any,
    column: int,
) -> None:
    for i in range(first, last):
        node, t = src[i], at[i]
        if node + 1 >= len(ptr):
            continue
        pair = find_column(col, ptr[node], ptr[node + 1], dst[i])
        if pair < 0:
            continue
        start = begin[pair]
        end = start + num_until(times, start, start + size[pair], t)
        if end == start:
            continue
        count = count_runs_until(times, totals, start, end, t)
        since = t - last_until(times, totals, start, end, t)
        out[i, column] = 1.0 if since == 0 else 0.0
        out[i, column + 1] = 1 / (1.0 + since)
        for k in range(len(scales)):
            out[i, column + 2 + k] = np.log1p(count - count_runs_until(times, totals, start, end, t - scales[k]))
        out[i, column + 2 + len(scales)] = np.log1p(count)


@cached_njit
def _common_neighbors(
    first: int, last: int, src: Any, dst: Any, ptr: Any, col: Any, recency: Any, out: Any, column: int
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
            q = find_column(col, low, ptr[long + 1], col[p])
            if q < 0:
                continue
            low = q + 1
            degree = ptr[col[p] + 1] - ptr[col[p]]
            if degree > MAX_HUB_DEGREE:
                continue
            number += 1
            adamic_adar += 1 / np.log(1.0 + degree)
            recent += recency[p] * recency[q]
        out[i, column] = np.log1p(number)
        out[i, column + 1] = adamic_adar
        out[i, column + 2] = recent
