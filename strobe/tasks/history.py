"""What is known of a pair of nodes when a snapshot has been read: whether, when and how often it had an edge, and how
many edges its ends have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.csr import FloatArray, IntArray
from strobe.tasks.pairs import Keys, edge_keys, pair_keys
from strobe.tasks.places import places
from strobe.tasks.runs import with_one_more

ITERATIONS = 50
RIDGE = 1e-4
"""Pulls coefficients towards 0, as a share of the mean square of the facts: they stay finite where facts tell all."""


@dataclass(frozen=True, eq=False)
class _Edges:
    """Edges of the snapshots ``start`` up to ``stop``, sorted by pair and then by time."""

    start: int
    stop: int
    pairs: Keys  # [P], ascending, each once
    first: IntArray  # [1 + P], where each pair's edges begin
    edges: Keys  # [E], number of the pair * snapshots + number of the snapshot

    @classmethod
    def of(cls, start: int, stop: int, keys: Keys, times: IntArray) -> _Edges:
        """From the pairs of edges, in order of time."""
        order = np.argsort(keys, kind="stable")  # equal keys stay in order of time
        keys = keys[order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        pairs, first = keys[first], np.append(first, len(keys))
        number = np.repeat(np.arange(len(pairs)), np.diff(first))
        return cls(start, stop, pairs, first, number * (stop - start) + times[order] - start)

    def __len__(self) -> int:
        return len(self.edges)

    def join(self, later: _Edges) -> _Edges:
        """With those of the snapshots that follow."""
        both = self, later
        keys = np.concatenate([np.repeat(each.pairs, np.diff(each.first)) for each in both])
        times = np.concatenate([each.start + each.edges % (each.stop - each.start) for each in both])
        return _Edges.of(self.start, later.stop, keys, times)

    def until(self, t: int, keys: Keys) -> tuple[IntArray, IntArray]:
        """In how many snapshots up to t pairs have an edge, and in which the last time, -1 for never."""
        span = self.stop - self.start
        pair = places(keys, self.pairs)
        behind = np.searchsorted(self.edges, pair * span + min(t, self.stop - 1) - self.start, side="right")
        often = np.where(pair >= 0, behind - self.first[pair], 0)
        last = np.full(len(keys), -1)
        last[often > 0] = self.start + self.edges[behind[often > 0] - 1] % span
        return often, last


class History:
    """Every edge of every snapshot read so far: 8 bytes each, and 16 for each distinct pair.

    Nothing after the snapshot asked about is told, so one history serves all times, also while more are read.
    """

    def __init__(self, graph: DynamicGraph) -> None:
        self._directed = graph.directed
        self._runs: tuple[_Edges, ...] = ()
        self._num_read = 0
        self.read(graph)

    def read(self, graph: DynamicGraph) -> None:
        """Takes the snapshots that a graph has beyond those that were read; each is read once, however often it is
        asked to."""
        start, stop = self._num_read, len(graph)
        if stop <= start:
            return
        found = [edge_keys(graph[t]) for t in range(start, stop)]
        times = np.repeat(np.arange(start, stop), [len(each) for each in found])
        new = _Edges.of(start, stop, np.concatenate(found), times)
        self._runs, self._num_read = with_one_more(self._runs, new, _Edges.join), stop

    def facts(self, read: Snapshot, src: IntArray, dst: IntArray) -> FloatArray:
        """[n, K] numbers about pairs of a snapshot's cells, from it and those before it.

        Of the pair: has an edge now; ever had one; log(1 + snapshots in which it did); 1 / (1 + how long ago, 0 for
        never). In directed graphs then the same of the pair turned round, and log(1 + degree) in and out of the source
        and of the destination; in undirected ones the smaller and the larger of both ends', in whatever order they
        come.
        """
        ends = read.nodes[src], read.nodes[dst]
        if self._directed:
            known = [self._edges_of(read.t, *ends), self._edges_of(read.t, *reversed(ends))]
            degrees = [degree[end] for end in (src, dst) for degree in (read.in_degree, read.out_degree)]
        else:
            known = [self._edges_of(read.t, *ends)]
            degrees = [order(read.in_degree[src], read.in_degree[dst]) for order in (np.minimum, np.maximum)]
        return np.concatenate([*known, np.log1p(np.stack(degrees, axis=1))], axis=1)

    def _edges_of(self, t: int, src: IntArray, dst: IntArray) -> FloatArray:
        keys = pair_keys(src, dst, self._directed)
        often, last = np.zeros(len(keys), np.int64), np.full(len(keys), -1)
        for run in self._runs:
            if run.start <= t:
                more, later = run.until(t, keys)
                often, last = often + more, np.maximum(last, later)
        seen = often > 0
        recent = np.zeros(len(keys))
        recent[seen] = 1 / (1 + t - last[seen])
        return np.stack([recent == 1, seen, np.log1p(often), recent], axis=1).astype(np.float64)


def num_facts(directed: bool) -> int:
    """How many numbers ``facts`` gives about a pair."""
    return 12 if directed else 6


def fit_log_odds(facts: Sequence[FloatArray], y: Sequence[FloatArray]) -> FloatArray:
    """The logistic regression of y (1 or 0) on facts: its constant, then a coefficient for each fact, [1 + K].

    Newton's method: few numbers, nothing drawn, no step size to choose.
    """
    x, true = _with_constant(np.concatenate(facts)), np.concatenate(y)
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


def log_odds(facts: FloatArray, beta: FloatArray) -> FloatArray:
    """What a fitted regression says, [n]."""
    said: FloatArray = _with_constant(facts) @ beta
    return said


def _with_constant(facts: FloatArray) -> FloatArray:
    return np.column_stack([np.ones(len(facts)), facts])
