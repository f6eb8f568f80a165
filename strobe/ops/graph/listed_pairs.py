"""Features of many listed pairs of several snapshots: of each node once, and of pairs with a history alone.

A pass over pairs in order of snapshots and sources. A few bits per neighbor of a source rule out nearly all other
neighbors of a destination. What depends on the snapshot (when a pair last met, the degree of a
common neighbor) is found for hits alone. Pairs without a history cost a lookup per neighbor and no memory.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from strobe.ops import native
from strobe.ops.graph.edge_times import (
    MAX_HUB_DEGREE,
    SCALES,
    EdgeTimes,
    Features,
    Neighbors,
)
from strobe.ops.runtime.njit import cached_njit
from strobe.ops.runtime.parallel import run_parts, run_ranges
from strobe.ops.sparse.csr import IntArray
from strobe.ops.sparse.csr_kernels import sort_by_row

_PART_PAIRS = 4096

_NEIGHBORS_PER_PAIR = 4
"""Neighbors of all nodes at a snapshot are listed if it has more pairs than a fraction, one over this, of them."""


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
        last = np.full(int(nodes.max(initial=0)) + 1, -1, np.int32)
        if native.library() is None:
            _distinct(ptr, nodes, last, position, found, starts)
        else:
            native.run("distinct_nodes", len(ptr) - 1, ptr, nodes, last, position, found, starts)
        return cls(position, found[: starts[-1]].copy(), starts)

    def select(self, entries: IntArray, chosen: IntArray) -> DistinctNodes:
        """Some of the entries, whose nodes are the chosen ones, which ascend."""
        place = np.full(len(self.nodes), -1, np.int32)
        place[chosen] = np.arange(len(chosen))
        return DistinctNodes(place[self.position[entries]], self.nodes[chosen], np.searchsorted(chosen, self.ptr))


def describe_nodes(history: EdgeTimes, times: IntArray, distinct: DistinctNodes) -> Features:
    """``EdgeTimes.node_features`` of the distinct nodes of several snapshots, [m, num_node_features]."""
    at = np.repeat(np.asarray(times, np.int32), np.diff(distinct.ptr))
    out = np.zeros((len(distinct.nodes), history.num_node_features), np.float32)
    history.fill_activity(distinct.nodes, at, out)
    return out


def find_listed_related(
    history: EdgeTimes, pairs: ListedPairs, sources: DistinctNodes | None = None
) -> tuple[npt.NDArray[np.int64], Features]:
    """Find the listed pairs whose ``EdgeTimes.pair_features`` are not all 0.

    Args:
        history: the edges.
        pairs: the pairs.
        sources: their distinct sources, if known. Pairs of one source are then read together, each source once.

    Returns:
        Their positions, [R], in order of sources, ascending for each, or ascending where sources are not given; and
        their features, [R, num_pair_features].
    """
    pairs = ListedPairs(*(np.ascontiguousarray(each, np.int64) for each in pairs))
    if native.library() is None:
        index, features = find_listed_related_plain(history, pairs)
        if sources is None:
            return index, features
        by_source = np.argsort(sources.position[index], kind="stable")
        return index[by_source], features[by_source]
    order: npt.NDArray[np.int32] = np.arange(len(pairs.src), dtype=np.int32)
    if sources is not None:
        _, order = sort_by_row(sources.position, len(sources.nodes))
    found = [(np.empty(0, np.int64), np.empty((0, history.num_pair_features), np.float32))]
    for k, last in _cut_snapshots(pairs.ptr, len(history.neighbors.col) // _NEIGHBORS_PER_PAIR):
        first, known = int(pairs.ptr[k]), None
        if int(pairs.ptr[k + 1]) == last and last - first > len(history.neighbors.col) // _NEIGHBORS_PER_PAIR:
            known = history.neighbors_at(int(pairs.times[k]))
        found += _find_in_parts(history, known, pairs, order[first:last])
    index, features = (np.concatenate(each) for each in zip(*found, strict=True))
    return index, features


def _cut_snapshots(ptr: IntArray, many: int) -> list[tuple[int, int]]:
    """Snapshots with more than ``many`` pairs, and runs of others: the first snapshot, and where the pairs end."""
    is_large = np.diff(ptr) > many
    starts = np.flatnonzero(is_large | np.append(True, is_large[:-1])) if len(is_large) else np.empty(0, np.int64)
    return list(zip(starts.tolist(), [*ptr[starts[1:]].tolist(), int(ptr[-1])], strict=False))


def find_listed_related_plain(history: EdgeTimes, pairs: ListedPairs) -> tuple[npt.NDArray[np.int64], Features]:
    """``find_listed_related`` from the features of all pairs."""
    parts = [slice(first, last) for first, last in pairwise(pairs.ptr.tolist())]
    features = np.zeros((len(pairs.src), history.num_pair_features), np.float32)
    for t, part in zip(pairs.times.tolist(), parts, strict=True):
        features[part] = history.pair_features(t, pairs.src[part], pairs.dst[part])
    index = np.flatnonzero(features.any(axis=1))
    return index, features[index]


_Related = tuple[npt.NDArray[np.int64], Features]


def _find_in_parts(
    history: EdgeTimes, known: Neighbors | None, pairs: ListedPairs, order: npt.NDArray[np.int32]
) -> list[_Related]:
    """Related pairs among some, in their order, and their features, part by part."""
    size = min(max(len(order) // (8 * torch.get_num_threads()), _PART_PAIRS), 16 * _PART_PAIRS)
    parts: list[Any] = [None] * -(-len(order) // size)

    def find(part: int) -> None:
        parts[part] = _find_related(history, known, pairs, order[part * size : (part + 1) * size])

    run_parts(find, len(parts))
    return parts


def _find_related(
    history: EdgeTimes, known: Neighbors | None, pairs: ListedPairs, order: npt.NDArray[np.int32]
) -> _Related:
    """Related pairs among some, in their order, and their features. ``known``: the neighbors at their snapshot."""
    first, last, recency = 0, len(order), None
    rows, arcs, (*degrees,) = history.neighbors.arrays(), history.arcs.arrays(), history.degrees.arrays()
    if known is not None:
        ptr, col, recency = known.arrays()
        rows = ptr, col, *rows[2:]
    longest, width = history.longest_row, history.num_pair_features
    index, features = np.empty(last - first, np.int64), np.zeros((last - first, width), np.float32)
    count = np.zeros(1, np.int64)
    scratch = np.empty(2 * longest, np.uint32), np.empty(longest, np.float64)
    snapshots = len(pairs.times), pairs.times, pairs.ptr, pairs.src, pairs.dst
    history_arrays = len(rows[0]) - 1, *rows, *arcs, *degrees, MAX_HUB_DEGREE, len(SCALES), np.array(SCALES, np.int64)
    native.run(
        "find_related",
        first,
        last,
        recency,
        order,
        *snapshots,
        *history_arrays,
        *scratch,
        width,
        index,
        features,
        count,
    )
    found = int(count[0])
    return index[:found].copy(), features[:found].copy()


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
    if native.library() is None:
        return of_rows[row] + of_columns[column]
    row, column = (np.ascontiguousarray(each, np.int32) for each in (row, column))
    of_rows, of_columns = (np.ascontiguousarray(each, np.float64) for each in (of_rows, of_columns))
    arrays, out = (row, column, of_rows, of_columns), np.empty(len(row))
    run_ranges(lambda first, last: native.run("sum_ends", first, last, *arrays, out), len(row), _PART_PAIRS)
    return out
