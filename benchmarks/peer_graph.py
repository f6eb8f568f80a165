"""The graph both systems train on: power-law degrees, a share of the edges replaced from snapshot to snapshot.

Needs numpy alone, so that either system's process can make it. The draws are those of the baseline that the goals
were set by, so that the graph is the very same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Edges = npt.NDArray[np.int64]


def edges(nodes: int, snapshots: int, per_snapshot: int, churn: float = 0.2, seed: int = 0) -> list[Edges]:
    """(source, destination) arrays [2, E] of ``snapshots`` + 1 snapshots: every one read has one after it."""
    rng = np.random.default_rng(seed)
    chance = (np.arange(nodes) + 10.0) ** -0.8
    cumulated = np.cumsum(chance / chance.sum())
    source_of, destination_of = rng.permutation(nodes), rng.permutation(nodes)

    search = _Search(cumulated)

    def draw(count: int) -> Edges:
        ends = [ids[np.minimum(search(rng.random(count)), nodes - 1)] for ids in (source_of, destination_of)]
        proper = ends[0] != ends[1]
        keys: Edges = ends[0][proper].astype(np.int64) * nodes + ends[1][proper]
        return keys

    def filled(keys: Edges) -> Edges:
        while keys.size < per_snapshot:
            missing = per_snapshot - keys.size
            fresh = _without(draw(int(missing * 1.3) + 64), keys)
            if fresh.size > missing:
                fresh = rng.choice(fresh, missing, replace=False)
            keys = np.concatenate([keys, fresh])
        return np.sort(keys)

    found = []
    current = filled(np.empty(0, np.int64))
    for _ in range(snapshots + 1):
        found.append(np.stack([current // nodes, current % nodes]))
        kept = rng.choice(current, round(current.size * (1 - churn)), replace=False)
        current = filled(np.sort(kept))
    return found


class _Search:
    """``np.searchsorted`` for numbers from 0 to 1 in no order: each begins close to where it ends."""

    def __init__(self, ascending: npt.NDArray[np.float64]) -> None:
        self._ascending = ascending
        self._parts = 1 << (2 * len(ascending)).bit_length()  # of a power of two, so that no product is rounded
        self._start = np.searchsorted(ascending, np.arange(self._parts) / self._parts).astype(np.int32)

    def __call__(self, numbers: npt.NDArray[np.float64]) -> Edges:
        at: Edges = self._start[(numbers * self._parts).astype(np.int64)].astype(np.int64)
        last = len(self._ascending) - 1
        moving = np.arange(len(numbers))
        while len(moving):
            here = at[moving]
            moving = moving[(here <= last) & (self._ascending[np.minimum(here, last)] < numbers[moving])]
            at[moving] += 1
        return at


def _without(keys: Edges, others: Edges) -> Edges:
    """``np.setdiff1d``, which hashes what is faster sorted."""
    keys, others = np.sort(keys), np.sort(others)
    first = np.concatenate(([True], keys[1:] != keys[:-1]))[: len(keys)]
    at = np.searchsorted(others, keys)
    known = np.concatenate((others, [-1]))[at] == keys
    fresh: Edges = keys[first & ~known]
    return fresh


def log_degrees(snapshot: Edges, nodes: int) -> npt.NDArray[np.float32]:
    """log(1 + in-degree, out-degree), [nodes, 2]: what is read, and of the next snapshot what is predicted."""
    counts = [np.bincount(snapshot[end], minlength=nodes) for end in (1, 0)]
    rows: npt.NDArray[np.float32] = np.log1p(np.stack(counts, 1)).astype(np.float32)
    return rows
