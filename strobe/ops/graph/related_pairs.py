"""Pairs of nodes with a history: neighbors, and nodes with a common neighbor, of some sources at once.

A pass over the neighbors of a source and over their neighbors finds its related nodes and all features of their common
neighbors, like a row of a sparse matrix product: pairs without a history cost nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.ops.graph.edge_times import MAX_HUB_DEGREE, NUM_COMMON, EdgeTimes, Features
from strobe.ops.runtime.njit import cached_njit
from strobe.ops.runtime.parallel import run_parts, run_ranges
from strobe.ops.sparse.csr import IntArray

_PART_SOURCES = 32


def find_related_pairs(
    history: EdgeTimes, t: int, sources: IntArray, candidates: IntArray
) -> tuple[npt.NDArray[np.int64], Features]:
    """Find the pairs of a source and a candidate whose ``EdgeTimes.pair_features`` at snapshot t are not all 0.

    Args:
        history: the edges.
        t: the snapshot read.
        sources: nodes, [S].
        candidates: distinct nodes, [M].

    Returns:
        Positions of sources and candidates, [2, n], in ascending order, and the features of the pairs, [n, K].
    """
    sources = np.ascontiguousarray(sources, np.int64)
    neighbors = history.neighbors_at(t)
    num_nodes = len(neighbors.ptr) - 1
    position = np.full(num_nodes, -1, np.int32)
    known = np.flatnonzero(candidates < num_nodes)
    position[candidates[known]] = known
    found: dict[int, Any] = {}

    def find(first: int, last: int) -> None:
        found[first] = _related(first, last, sources, position, len(candidates), *neighbors.arrays())

    run_ranges(find, len(sources), _PART_SOURCES)
    parts = [found[first] for first in sorted(found)]
    cuts = np.cumsum([0, *(len(common) for _, common in parts)])
    index = np.empty((2, cuts[-1]), np.int64)
    features = np.zeros((cuts[-1], history.num_pair_features), np.float32)

    def join(part: int) -> None:
        here = slice(cuts[part], cuts[part + 1])
        index[:, here], common = parts[part]
        features[here, -NUM_COMMON:] = common
        history.fill_meetings(t, sources[index[0, here]], candidates[index[1, here]], features[here])

    run_parts(join, len(parts))
    return index, features


@cached_njit
def _related(
    first: int, last: int, sources: Any, position: Any, num_candidates: int, ptr: Any, col: Any, recency: Any
) -> Any:
    """Related pairs of some sources, and the features of their common neighbors."""
    seen = np.full(num_candidates, -1, np.int32)  # the last row that touched a candidate
    touched = np.empty(num_candidates, np.int32)
    sums = np.zeros((num_candidates, NUM_COMMON))
    index, features, size = np.empty((2, 1024), np.int64), np.empty((1024, NUM_COMMON), np.float32), 0
    for row in range(first, last):
        if sources[row] + 1 >= len(ptr):
            continue
        count = _sum_common(row, sources[row], position, ptr, col, recency, seen, touched, sums)
        if size + count > len(features):
            index, features = _grow(index, features, size, size + count)
        for place in np.sort(touched[:count]):
            index[0, size], index[1, size] = row, place
            features[size, 0] = np.log1p(sums[place, 0])
            features[size, 1], features[size, 2] = sums[place, 1], sums[place, 2]
            size += 1
    return index[:, :size], features[:size]


@cached_njit
def _sum_common(
    row: int,
    source: int,
    position: Any,
    ptr: Any,
    col: Any,
    recency: Any,
    seen: Any,
    touched: Any,
    sums: Any,
) -> int:
    """Sum the features of the common neighbors of a source and each candidate; the number of candidates touched."""
    count = 0
    for p in range(ptr[source], ptr[source + 1]):
        middle = col[p]
        place = position[middle]
        if place >= 0 and seen[place] != row and middle != source:
            seen[place], touched[count] = row, place
            sums[place] = 0
            count += 1
        degree = ptr[middle + 1] - ptr[middle]
        if degree > MAX_HUB_DEGREE:
            continue
        since, weight = recency[p], 1 / np.log(1.0 + degree)
        for q in range(ptr[middle], ptr[middle + 1]):
            place = position[col[q]]
            if place < 0 or col[q] == source:
                continue
            if seen[place] != row:
                seen[place], touched[count] = row, place
                sums[place] = 0
                count += 1
            sums[place, 0] += 1
            sums[place, 1] += weight
            sums[place, 2] += since * recency[q]
    return count


@cached_njit
def _grow(index: Any, features: Any, size: int, needed: int) -> Any:
    """Copies of arrays with twice the room, or what is needed."""
    room = max(2 * len(features), needed)
    larger, more = np.empty((2, room), np.int64), np.empty((room, NUM_COMMON), np.float32)
    larger[:, :size], more[:size] = index[:, :size], features[:size]
    return larger, more
