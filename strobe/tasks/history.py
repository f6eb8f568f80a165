"""What is known of a pair of nodes when a snapshot has been read: whether, when and how often it had an edge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from strobe.graph import DynamicGraph
from strobe.ops.csr import FloatArray, IntArray
from strobe.tasks.pairs import Keys, edge_keys, pair_keys
from strobe.tasks.places import places

ITERATIONS = 25
RIDGE = 1e-3
"""Pulls coefficients towards 0, as a share of the mean curvature: what separates the examples stays finite."""


class History:
    """Every edge of every snapshot, sorted by pair and then by time: 16 bytes each.

    Nothing after the snapshot read is told, so one history serves all times.
    """

    def __init__(self, graph: DynamicGraph) -> None:
        self.num_nodes, self.directed = graph.num_nodes, graph.directed
        found = [edge_keys(snapshot, graph.num_nodes) for snapshot in graph]
        keys = np.concatenate([np.empty(0, np.int64), *found])
        times = np.repeat(np.arange(len(found)), [len(each) for each in found])
        order = np.argsort(keys, kind="stable")  # equal keys stay in order of time
        self._num_times = len(found)
        self._pairs, start = np.unique(keys[order], return_index=True)
        self._first = np.append(start, len(keys))
        rank = np.repeat(np.arange(len(self._pairs)), np.diff(self._first))
        self._edges = rank * self._num_times + times[order]

    def facts(self, t: int, src: IntArray, dst: IntArray) -> FloatArray:
        """[n, K] numbers about pairs of global ids from the snapshots up to t, all 0 for a pair without an edge so far:
        had one in t; ever had one; log(1 + how often); 1 / (1 + how long ago). In directed graphs then the same of
        the pair turned round."""
        facts = self._facts(t, pair_keys(src, dst, self.num_nodes, self.directed))
        if not self.directed:
            return facts
        return np.concatenate([facts, self._facts(t, pair_keys(dst, src, self.num_nodes, True))], axis=1)

    def _facts(self, t: int, keys: Keys) -> FloatArray:
        rank = places(keys, self._pairs)
        until = np.searchsorted(self._edges, rank * self._num_times + t, side="right")
        often = np.where(rank >= 0, until - self._first[rank], 0)
        seen = often > 0
        last = self._edges[until - 1] - rank * self._num_times if len(self._edges) else rank
        recent = np.where(seen, 1 / (1 + np.where(seen, t - last, 0)), 0)
        return np.stack([recent == 1, seen, np.log1p(often), recent], axis=1).astype(np.float64)


def fit_log_odds(parts: Sequence[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """Coefficients [K] of the logistic regression of y on facts; its constant is left out.

    Newton's method on few numbers: no step size, nothing drawn, the same on every machine but for rounding.
    """
    facts = np.concatenate([facts for facts, _ in parts])
    y = np.concatenate([y for _, y in parts])
    x = np.column_stack([np.ones(len(facts)), facts])
    beta = np.zeros(x.shape[1])
    for _ in range(ITERATIONS):
        chance = 1 / (1 + np.exp(-(x @ beta)))
        hessian = (x * (chance * (1 - chance))[:, None]).T @ x
        ridge = RIDGE * np.trace(hessian) / len(hessian)
        gradient = x.T @ (y - chance) - ridge * beta
        step = np.linalg.solve(hessian + ridge * np.eye(len(beta)), gradient)
        beta += step
        if np.abs(step).max() < 1e-8:
            break
    return beta[1:]
