"""What is known of a pair of nodes when a snapshot has been read: whether, when and how often it had an edge, and how
many edges its ends have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import expit

from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.csr import FloatArray, IntArray
from strobe.tasks.pairs import Keys, edge_keys, pair_keys
from strobe.tasks.places import places

ITERATIONS = 50
RIDGE = 1e-4
"""Pulls coefficients towards 0, as a share of the mean square of the facts: they stay finite where facts tell all."""


class History:
    """Every edge of every snapshot, sorted by pair and then by time: 8 bytes each, and 16 for each distinct pair.

    Nothing after the snapshot read is told, so one history serves all times.
    """

    def __init__(self, graph: DynamicGraph) -> None:
        self._num_nodes, self._directed, self._num_times = graph.num_nodes, graph.directed, max(len(graph), 1)
        found = [edge_keys(snapshot, graph.num_nodes) for snapshot in graph]
        keys = np.concatenate([np.empty(0, np.int64), *found])
        times = np.repeat(np.arange(len(found)), [len(each) for each in found])
        order = np.argsort(keys, kind="stable")  # equal keys stay in order of time
        keys = keys[order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        self._pairs, self._first = keys[first], np.append(first, len(keys))
        pair = np.repeat(np.arange(len(self._pairs)), np.diff(self._first))
        self._edges = pair * self._num_times + times[order]

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
        keys: Keys = pair_keys(src, dst, self._num_nodes, self._directed)
        pair = places(keys, self._pairs)
        until = np.searchsorted(self._edges, pair * self._num_times + t, side="right")
        often = np.where(pair >= 0, until - self._first[pair], 0)
        seen = often > 0
        recent = np.zeros(len(keys))
        recent[seen] = 1 / (1 + t - self._edges[until[seen] - 1] % self._num_times)
        return np.stack([recent == 1, seen, np.log1p(often), recent], axis=1).astype(np.float64)


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
