"""Pairs of nodes with a history: neighbors, and nodes with a common neighbor, of some sources at once.

A pass over the neighbors of a source and over their neighbors finds its related nodes and all features of their common
neighbors, like a row of a sparse matrix product: pairs without a history cost nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.ops.graph.edge_times import MAX_HUB_DEGREE, NUM_COMMON, EdgeTimes, Features, count_until
from strobe.ops.runtime.njit import cached_njit
from strobe.ops.runtime.parallel import run_ranges
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
    num_nodes = len(history.neighbors.ptr) - 1
    position = np.full(num_nodes, -1, np.int64)
    known = np.flatnonzero(candidates < num_nodes)
    position[candidates[known]] = known
    found: dict[int, Any] = {}

    def run(first: int, last: int) -> None:
        found[first] = _related(first, last, sources, position, t, *history.neighbors.arrays(), history.first_times)

    run_ranges(run, len(sources), _PART_SOURCES)
    parts = [found[first] for first in sorted(found)]
    index = np.concatenate([np.empty((2, 0), np.int64), *(part[0] for part in parts)], axis=1)
    features = np.zeros((index.shape[1], history.num_pair_features), np.float32)
    if len(features):
        features[:, -NUM_COMMON:] = np.concatenate([part[1] for part in parts])
        history.fill_meetings(t, sources[index[0]], candidates[index[1]], features)
    return index, features


@cached_njit
def _related(
    first: int,
    last: int,
    sources: Any,
    position: Any,
    t: int,
    ptr: Any,
    col: Any,
    time_ptr: Any,
    times: Any,
    first_times: Any,
) -> Any:
    """Related pairs of some sources, and the features of their common neighbors."""
    num_nodes = len(ptr) - 1
    seen = np.full(num_nodes, -1, np.int64)  # the last row that touched a node
    sums = np.zeros((num_nodes, NUM_COMMON))
    touched = np.empty(num_nodes, np.int64)  # positions of candidates
    node_at = np.full(max(position.max() + 1, 1) if num_nodes else 1, -1, np.int64)
    for node in range(num_nodes):
        if position[node] >= 0:
            node_at[position[node]] = node
    capacity = 1024
    index, features, size = np.empty((2, capacity), np.int64), np.empty((capacity, NUM_COMMON), np.float32), 0
    for row in range(first, last):
        source, count = sources[row], 0
        if source >= num_nodes:
            continue
        for p in range(ptr[source], ptr[source + 1]):
            met = count_until(times, time_ptr[p], time_ptr[p + 1], t)
            if met == 0:
                continue
            middle = col[p]
            if position[middle] >= 0 and seen[middle] != row and middle != source:
                seen[middle], touched[count] = row, position[middle]
                sums[middle] = 0
                count += 1
            degree = count_until(first_times, ptr[middle], ptr[middle + 1], t)
            if degree > MAX_HUB_DEGREE:
                continue
            since, weight = t - times[time_ptr[p] + met - 1], 1 / np.log(1.0 + degree)
            for q in range(ptr[middle], ptr[middle + 1]):
                node = col[q]
                if node == source or position[node] < 0:
                    continue
                met_too = count_until(times, time_ptr[q], time_ptr[q + 1], t)
                if met_too == 0:
                    continue
                if seen[node] != row:
                    seen[node], touched[count] = row, position[node]
                    sums[node] = 0
                    count += 1
                since_too = t - times[time_ptr[q] + met_too - 1]
                sums[node, 0] += 1
                sums[node, 1] += weight
                sums[node, 2] += 1 / np.sqrt((1.0 + since) * (1.0 + since_too))
        while size + count > capacity:
            capacity *= 2
            larger, more = np.empty((2, capacity), np.int64), np.empty((capacity, NUM_COMMON), np.float32)
            larger[:, :size], more[:size] = index[:, :size], features[:size]
            index, features = larger, more
        for place in np.sort(touched[:count]):
            node = node_at[place]
            index[0, size], index[1, size] = row, place
            features[size, 0] = np.log1p(sums[node, 0])
            features[size, 1], features[size, 2] = sums[node, 1], sums[node, 2]
            size += 1
    return index[:, :size].copy(), features[:size].copy()
