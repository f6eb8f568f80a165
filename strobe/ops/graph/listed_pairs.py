"""Features of many listed pairs of several snapshots: of each node once, and of pairs with a history alone.

A pass over pairs in order of snapshots. The neighbors of a source are in a small hash table while its pairs are read;
each neighbor of a destination is looked up there. What depends on the snapshot (when a pair last met, the degree of a
common neighbor) is found for hits alone. Pairs without a history cost a lookup per neighbor and no memory.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from strobe.ops import native
from strobe.ops.graph.edge_times import (
    MAX_HUB_DEGREE,
    NUM_COMMON,
    SCALES,
    EdgeTimes,
    Features,
    node_activity,
)
from strobe.ops.runtime.njit import cached_njit
from strobe.ops.runtime.parallel import run_parts, run_ranges
from strobe.ops.sparse.csr import IntArray

_PART_PAIRS = 4096
_ROOM = 1 << 16
"""Neighbors of cached rows, which stay in a core's cache."""


class ListedPairs(NamedTuple):
    """Pairs of several snapshots: pairs ``ptr[k] … ptr[k + 1] - 1`` are read at snapshot ``times[k]``.

    Args:
        times: snapshots, ascending, [T].
        ptr: where their pairs begin, [T + 1].
        src: node ids of sources, [n].
        dst: node ids of destinations, [n].
    """

    times: IntArray
    ptr: IntArray
    src: IntArray
    dst: IntArray

    @classmethod
    def of_snapshot(cls, t: int, src: IntArray, dst: IntArray) -> ListedPairs:
        """The pairs of one snapshot."""
        return cls(np.array([t]), np.array([0, len(src)]), src, dst)

    def select(self, index: IntArray) -> ListedPairs:
        """Some of the pairs, in order."""
        return ListedPairs(self.times, np.searchsorted(index, self.ptr), self.src[index], self.dst[index])


class DistinctNodes(NamedTuple):
    """The distinct nodes of each snapshot, in the order in which they come.

    Args:
        position: the position of each entry among all distinct nodes, [n].
        nodes: node ids, [m].
        ptr: where the nodes of each snapshot begin, [T + 1].
    """

    position: npt.NDArray[np.int32]
    nodes: npt.NDArray[np.int64]
    ptr: npt.NDArray[np.int64]

    @classmethod
    def find(cls, ptr: IntArray, nodes: IntArray) -> DistinctNodes:
        """Find the distinct nodes among the entries ``ptr[k] … ptr[k + 1] - 1`` of each snapshot."""
        ptr, nodes = (np.ascontiguousarray(each, np.int64) for each in (ptr, nodes))
        position, found, starts = np.empty(len(nodes), np.int32), np.empty(len(nodes), np.int64), np.zeros_like(ptr)
        _distinct(ptr, nodes, np.full(int(nodes.max(initial=0)) + 1, -1, np.int32), position, found, starts)
        return cls(position, found[: starts[-1]].copy(), starts)

    def select(self, entries: IntArray, chosen: IntArray) -> DistinctNodes:
        """Some of the entries, whose nodes are the chosen ones, which ascend."""
        place = np.full(len(self.nodes), -1, np.int32)
        place[chosen] = np.arange(len(chosen))
        return DistinctNodes(place[self.position[entries]], self.nodes[chosen], np.searchsorted(chosen, self.ptr))


def describe_nodes(history: EdgeTimes, times: IntArray, distinct: DistinctNodes) -> Features:
    """``EdgeTimes.node_features`` of the distinct nodes of several snapshots, [m, num_node_features]."""
    nodes, at = distinct.nodes, np.repeat(np.asarray(times, np.int32), np.diff(distinct.ptr))
    out = np.zeros((len(nodes), history.num_node_features), np.float32)

    def run(first: int, last: int) -> None:
        for k, lists in enumerate(history.activity_lists):
            node_activity(first, last, nodes, at, *lists.arrays(), SCALES, out, k * history.num_node_features // 2)

    run_ranges(run, len(nodes), _PART_PAIRS)
    return out


def find_listed_related(history: EdgeTimes, pairs: ListedPairs) -> tuple[npt.NDArray[np.int64], Features]:
    """Find the listed pairs whose ``EdgeTimes.pair_features`` are not all 0.

    Returns:
        Their positions, ascending, [R], and their features, [R, num_pair_features].
    """
    pairs = ListedPairs(*(np.ascontiguousarray(each, np.int64) for each in pairs))
    if native.library() is None:
        return find_listed_related_plain(history, pairs)
    found: dict[int, Any] = {}

    def find(first: int, last: int) -> None:
        found[first] = _find_related(history, pairs, first, last)

    run_ranges(find, len(pairs.src), _PART_PAIRS)
    parts = [found[first] for first in sorted(found)]
    cuts = np.cumsum([0, *(len(at) for at, _ in parts)])
    index = np.empty(cuts[-1], np.int64)
    features = np.zeros((cuts[-1], history.num_pair_features), np.float32)

    def join(part: int) -> None:
        here = slice(cuts[part], cuts[part + 1])
        index[here], features[here, -NUM_COMMON:] = parts[part]
        at = pairs.times[np.searchsorted(pairs.ptr, index[here], side="right") - 1]
        history.fill_meetings(at, pairs.src[index[here]], pairs.dst[index[here]], features[here])

    run_parts(join, len(parts))
    return index, features


def find_listed_related_plain(history: EdgeTimes, pairs: ListedPairs) -> tuple[npt.NDArray[np.int64], Features]:
    """``find_listed_related`` from the features of all pairs."""
    parts = [slice(first, last) for first, last in pairwise(pairs.ptr.tolist())]
    features = np.zeros((len(pairs.src), history.num_pair_features), np.float32)
    for t, part in zip(pairs.times.tolist(), parts, strict=True):
        features[part] = history.pair_features(t, pairs.src[part], pairs.dst[part])
    index = np.flatnonzero(features.any(axis=1))
    return index, features[index]


def _find_related(history: EdgeTimes, pairs: ListedPairs, first: int, last: int) -> tuple[IntArray, Features]:
    """Related pairs among ``first`` up to ``last``, and the features of their common neighbors."""
    rows, (*degrees,) = history.neighbors.arrays(), history.degrees.arrays()
    longest = int(np.diff(rows[0]).max(initial=1))
    places, bits = np.empty(8 * longest, np.int32), np.empty(2 * longest, np.uint64)
    index, features = np.empty(last - first, np.int64), np.empty((last - first, NUM_COMMON), np.float32)
    count = np.zeros(1, np.int64)
    snapshots = len(pairs.times), pairs.times, pairs.ptr, pairs.src, pairs.dst
    scratch = places, bits, np.empty(_ROOM), _ROOM
    outputs = index, features, count
    sizes = len(rows[0]) - 1, *rows
    native.run("find_related", first, last, *snapshots, *sizes, *degrees, MAX_HUB_DEGREE, *scratch, *outputs)
    return index[: count[0]], features[: count[0]]


@cached_njit
def _distinct(ptr: Any, nodes: Any, last: Any, position: Any, found: Any, starts: Any) -> None:
    """``last`` has the position of each node in the snapshot where it last was."""
    size = 0
    for k in range(len(ptr) - 1):
        first = size
        for i in range(ptr[k], ptr[k + 1]):
            node = nodes[i]
            if last[node] < first:
                last[node] = size
                found[size] = node
                size += 1
            position[i] = last[node]
        starts[k + 1] = size


def sum_ends(
    row: npt.NDArray[np.int32],
    column: npt.NDArray[np.int32],
    of_rows: npt.NDArray[np.float64],
    of_columns: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """``of_rows[row] + of_columns[column]``, [n]."""
    out = np.empty(len(row))
    run_ranges(lambda first, last: _sum_ends(first, last, row, column, of_rows, of_columns, out), len(row), _PART_PAIRS)
    return out


@cached_njit
def _sum_ends(first: int, last: int, row: Any, column: Any, of_rows: Any, of_columns: Any, out: Any) -> None:
    for i in range(first, last):
        out[i] = of_rows[row[i]] + of_columns[column[i]]
