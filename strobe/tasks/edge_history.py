"""The history of edges: features of pairs, and a logistic regression on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.special import expit

from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.sparse.csr import FloatArray, IntArray
from strobe.tasks.pairs import Keys, contains, edge_keys, merge_keys, pair_keys
from strobe.tasks.positions import find_positions

RunT = TypeVar("RunT", bound=Sized)


def append_run(runs: tuple[RunT, ...], new: RunT, merge: Callable[[RunT, RunT], RunT]) -> tuple[RunT, ...]:
    """Append a sorted run, merging it with the runs before it that are at most twice as long.

    Each run is then less than half as long as the one before it: there are at most log2(items) runs, and an item is
    merged about log(items) times.
    """
    *before, last = *runs, new
    while before and len(before[-1]) <= 2 * len(last):
        last = merge(before.pop(), last)
    return (*before, last)


ITERATIONS = 50
RIDGE = 1e-4
"""L2 penalty, relative to the mean square of the features: coefficients stay finite for separable data."""


@dataclass(frozen=True, eq=False)
class _EdgeRun:
    """Edges of snapshots ``start`` up to ``stop``, sorted by pair, then by time."""

    start: int
    stop: int
    pairs: Keys  # [P], ascending, each once
    first: IntArray  # [1 + P], where each pair's edges begin
    edges: Keys  # [E], number of the pair * snapshots + number of the snapshot

    @classmethod
    def from_edges(cls, start: int, stop: int, keys: Keys, times: IntArray) -> _EdgeRun:
        """Build a run from the pairs of edges, in order of time."""
        order = np.argsort(keys, kind="stable")  # equal keys stay in order of time
        keys = keys[order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        pairs, first = keys[first], np.append(first, len(keys))
        number = np.repeat(np.arange(len(pairs)), np.diff(first))
        return cls(start, stop, pairs, first, number * (stop - start) + times[order] - start)

    def __len__(self) -> int:
        return len(self.edges)

    def merge(self, later: _EdgeRun) -> _EdgeRun:
        """Merge with the run of the next snapshots."""
        both = self, later
        keys = np.concatenate([np.repeat(each.pairs, np.diff(each.first)) for each in both])
        times = np.concatenate([each.start + each.edges % (each.stop - each.start) for each in both])
        return _EdgeRun.from_edges(self.start, later.stop, keys, times)

    def count_until(self, t: int, keys: Keys) -> tuple[IntArray, IntArray]:
        """The number of snapshots up to t in which each pair has an edge, and the last of them, -1 for none."""
        span = self.stop - self.start
        pair = find_positions(keys, self.pairs)
        behind = np.searchsorted(self.edges, pair * span + min(t, self.stop - 1) - self.start, side="right")
        often = np.where(pair >= 0, behind - self.first[pair], 0)
        last = np.full(len(keys), -1)
        last[often > 0] = self.start + self.edges[behind[often > 0] - 1] % span
        return often, last


class EdgeHistory:
    """All edges of all snapshots read so far: 8 bytes each, and 16 for each distinct pair.

    Features of a snapshot never depend on later ones, so one history serves all snapshots, even while it grows.
    """

    def __init__(self, graph: DynamicGraph) -> None:
        self._directed = graph.directed
        self._runs: tuple[_EdgeRun, ...] = ()
        self._num_read = 0
        self.update(graph)

    def update(self, graph: DynamicGraph) -> None:
        """Read the snapshots of a graph that were not read before."""
        start, stop = self._num_read, len(graph)
        if stop <= start:
            return
        keys = [edge_keys(graph[t]) for t in range(start, stop)]
        times = np.repeat(np.arange(start, stop), [len(each) for each in keys])
        new = _EdgeRun.from_edges(start, stop, np.concatenate(keys), times)
        self._runs, self._num_read = append_run(self._runs, new, _EdgeRun.merge), stop

    def pair_features(self, read: Snapshot, src: IntArray, dst: IntArray) -> FloatArray:
        """Features of pairs of a snapshot's cells, [n, K], from the snapshot and earlier ones.

        Of the pair: has an edge now; ever had one; log(1 + snapshots with one); 1 / (1 + snapshots since the last), 0
        for never. In directed graphs also those four of the reversed pair, and log(1 + degree) in and out of the source
        and of the destination; in undirected ones the smaller and the larger log(1 + degree) of both ends.
        """
        ends = read.nodes[src], read.nodes[dst]
        if self._directed:
            edges = [self._edge_features(read.t, *ends), self._edge_features(read.t, *reversed(ends))]
            degrees = [degree[end] for end in (src, dst) for degree in (read.in_degree, read.out_degree)]
        else:
            edges = [self._edge_features(read.t, *ends)]
            degrees = [order(read.in_degree[src], read.in_degree[dst]) for order in (np.minimum, np.maximum)]
        return np.concatenate([*edges, np.log1p(np.stack(degrees, axis=1))], axis=1)

    def _edge_features(self, t: int, src: IntArray, dst: IntArray) -> FloatArray:
        keys = pair_keys(src, dst, self._directed)
        often, last = np.zeros(len(keys), np.int64), np.full(len(keys), -1)
        for run in self._runs:
            if run.start <= t:
                more, later = run.count_until(t, keys)
                often, last = often + more, np.maximum(last, later)
        seen = often > 0
        recent = np.zeros(len(keys))
        recent[seen] = 1 / (1 + t - last[seen])
        return np.stack([recent == 1, seen, np.log1p(often), recent], axis=1).astype(np.float64)


def num_pair_features(directed: bool) -> int:
    """The number of ``EdgeHistory.pair_features``."""
    return 12 if directed else 6


def fit_logistic_regression(features: Sequence[FloatArray], labels: Sequence[FloatArray]) -> FloatArray:
    """Fit a logistic regression of labels (1 or 0) by Newton's method: intercept and coefficients, [1 + K]."""
    x, true = _add_intercept(np.concatenate(features)), np.concatenate(labels)
    beta = np.zeros(x.shape[1])
    ridge = RIDGE * np.square(x).sum() / x.shape[1]
    for _ in range(ITERATIONS):
        chance = expit(x @ beta)
        hessian = (x * (chance * (1 - chance))[:, None]).T @ x + ridge * np.eye(len(beta))
        step = np.linalg.solve(hessian, x.T @ (true - chance) - ridge * beta)
        beta += step
        if np.abs(step).max() < 1e-9:
            break
    return beta


def predict_log_odds(features: FloatArray, beta: FloatArray) -> FloatArray:
    """The log-odds of a fitted regression, [n]."""
    log_odds: FloatArray = _add_intercept(features) @ beta
    return log_odds


def _add_intercept(features: FloatArray) -> FloatArray:
    return np.column_stack([np.ones(len(features)), features])


class SeenEdges:
    """Pairs with an edge so far, pairs of the last snapshot, and in-edges of each node: 8 bytes per distinct pair.

    Snapshots are read in order of time.
    """

    def __init__(self) -> None:
        self.num_read = 0
        self._seen: tuple[Keys, ...] = ()
        self._now: Keys = np.empty(0, np.int64)
        self._reached: IntArray = np.empty(0, np.int64)

    def update(self, snapshot: Snapshot) -> None:
        """Read the next snapshot."""
        assert snapshot.t == self.num_read
        self.num_read += 1
        self._now = edge_keys(snapshot)
        self._seen = append_run(self._seen, self._now, merge_keys)
        if snapshot.num_nodes:
            self._reached = np.pad(self._reached, (0, max(int(snapshot.nodes[-1]) + 1 - len(self._reached), 0)))
            self._reached[snapshot.nodes] += snapshot.in_degree

    def in_last_snapshot(self, keys: Keys) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which pairs have an edge in the last snapshot."""
        return contains(self._now, keys)

    def ever_seen(self, keys: Keys) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which pairs had an edge in any snapshot."""
        seen = np.zeros(len(keys), bool)
        for run in self._seen:
            seen |= contains(run, keys)
        return seen

    def num_in_edges(self, nodes: IntArray) -> IntArray:
        """The number of in-edges so far of nodes that have been present."""
        return self._reached[nodes]
