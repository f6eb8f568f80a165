"""The edges of target snapshots: positives, and negatives sampled among the other candidates."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.graph import Snapshot
from strobe.ops import native
from strobe.ops.runtime.njit import cached_njit
from strobe.ops.runtime.parallel import run_ranges
from strobe.tasks.pairs import MAX_NODES, Keys, unique_arcs
from strobe.tasks.positions import find_positions

CACHE_BYTES = 1 << 28
"""Bytes of target edges that a problem caches between epochs."""

_PART_SOURCES = 4096

_lock = threading.Lock()


@dataclass(frozen=True, eq=False)
class TargetEdges:
    """The edges of a target snapshot, without self-loops and parallel edges.

    ``arcs`` are ascending keys, with both directions of an undirected edge. ``edges`` are the positives: an undirected
    edge once, smaller end first.
    """

    arcs: Keys
    edges: Keys

    @classmethod
    def from_snapshot(cls, target: Snapshot) -> TargetEdges:
        src, dst = unique_arcs(target)
        arcs = src * MAX_NODES + dst
        return cls(arcs, arcs if target.directed else arcs[src < dst])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return int(self.arcs.nbytes) if self.edges is self.arcs else int(self.arcs.nbytes + self.edges.nbytes)

    def sample_negatives(
        self, src: Keys, candidates: Candidates, count: int, rng: np.random.Generator
    ) -> tuple[npt.NDArray[np.bool_], Keys]:
        """Sample ``count`` uniform candidates of each source that are neither its successors nor the source itself,
        without rejection: the r-th such candidate is r plus the successors before it, found by binary search. Samples
        are independent, so a node may come twice.

        Returns:
            Whether each source has such a candidate, and the samples of those that have, [sources, count].
        """
        arcs = candidates.index_arcs(self.arcs)
        own = candidates.positions(src)
        successors, free = np.empty((len(src), 2), np.int64), np.empty(len(src), np.int64)
        count_free(arcs, src, own, candidates.num_nodes, successors, free)
        has = free > 0
        if not has.all():
            src, own, successors, free = src[has], own[has], successors[has], free[has]
        sampled = rng.integers(0, free[:, None], (len(src), count))
        skip_successors(arcs, src, own, successors, sampled)
        return has, candidates.nodes_at(sampled)


class TargetEdgesCache:
    """The target edges of snapshots, kept as far as they fit into ``CACHE_BYTES``."""

    def __init__(self) -> None:
        self._known: dict[int, TargetEdges] = {}
        self._bytes = 0

    def __len__(self) -> int:
        """Snapshots whose edges are kept."""
        return len(self._known)

    def get(self, t: int, read: Callable[[int], TargetEdges]) -> TargetEdges:
        """The target edges of snapshot t, read if they are absent; several threads may call."""
        known = self._known.get(t)
        if known is None:
            known = read(t)
            with _lock:
                if t not in self._known and self._bytes + known.nbytes <= CACHE_BYTES:
                    self._known[t] = known
                    self._bytes += known.nbytes
        return known


@dataclass(frozen=True, eq=False)
class Candidates:
    """The nodes that may be destinations: ``nodes``, ascending, or the first ``num_nodes`` node ids."""

    num_nodes: int
    nodes: Keys | None = None

    def positions(self, nodes: Keys) -> Keys:
        """The position of nodes among the candidates; -1 for other nodes."""
        return nodes if self.nodes is None else find_positions(nodes, self.nodes).astype(np.int64, copy=False)

    def nodes_at(self, positions: Keys) -> Keys:
        """The nodes at positions."""
        return positions if self.nodes is None else self.nodes[positions]

    def index_arcs(self, arcs: Keys) -> Keys:
        """Keys whose destinations are positions among the candidates; arcs to other nodes are left out."""
        if self.nodes is None:
            return arcs
        src, dst = np.divmod(arcs, MAX_NODES)
        at = self.positions(dst)
        return (src * MAX_NODES + at)[at >= 0]


def count_free(arcs: Keys, src: Keys, own: Keys, num_nodes: int, successors: Keys, free: Keys) -> None:
    """Fill where the successors of each source begin and end among arcs, [n, 2], and the number of candidates besides
    them and itself, [n]."""
    if native.library() is None:
        _count_free(arcs, src, own, num_nodes, successors, free)
        return
    arcs, src, own = (np.ascontiguousarray(each, np.int64) for each in (arcs, src, own))

    def run(first: int, last: int) -> None:
        native.run("count_free", first, last, MAX_NODES, len(arcs), arcs, src, own, num_nodes, successors, free)

    run_ranges(run, len(src), _PART_SOURCES)


def skip_successors(arcs: Keys, src: Keys, own: Keys, successors: Keys, sampled: Keys) -> None:
    """Replace numbers r, [n, count], by the positions of the r-th candidates that are neither successors nor the
    source."""
    if native.library() is None:
        _skip_successors(arcs, src, own, successors, sampled)
        return
    arcs, src, own, successors = (np.ascontiguousarray(each, np.int64) for each in (arcs, src, own, successors))

    def run(first: int, last: int) -> None:
        native.run("skip_successors", first, last, sampled.shape[1], MAX_NODES, arcs, src, own, successors, sampled)

    run_ranges(run, len(src), _PART_SOURCES)


@cached_njit
def _first_at_least(keys: Any, low: int, high: int, wanted: int) -> int:
    """The first position among ``low`` up to ``high`` whose key is not less than the wanted one."""
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@cached_njit
def _count_free(arcs: Any, src: Any, own: Any, num_nodes: int, successors: Any, free: Any) -> None:
    """Where the successors of each source begin and end among arcs, and the candidates besides them and itself."""
    for i in range(len(src)):
        if i and src[i] == src[i - 1]:
            successors[i], free[i] = successors[i - 1], free[i - 1]
            continue
        first = _first_at_least(arcs, 0, len(arcs), src[i] * MAX_NODES)
        end = _first_at_least(arcs, first, len(arcs), (src[i] + 1) * MAX_NODES)
        successors[i, 0], successors[i, 1] = first, end
        free[i] = num_nodes - (end - first) - (1 if own[i] >= 0 else 0)


@cached_njit
def _skip_successors(arcs: Any, src: Any, own: Any, successors: Any, sampled: Any) -> None:
    """Replace numbers r by the positions of the r-th candidates that are neither successors nor the source."""
    for i in range(len(src)):
        first, end, base = successors[i, 0], successors[i, 1], src[i] * MAX_NODES
        before_own = _first_at_least(arcs, first, end, base + max(own[i], 0)) - first
        for k in range(sampled.shape[1]):
            r = sampled[i, k]
            if own[i] >= 0 and r >= own[i] - before_own:  # the source itself is no successor
                r += 1
            # A successor's position less the successors before it: the other candidates before it.
            low, high = first, end
            while low < high:
                middle = (low + high) // 2
                if arcs[middle] - base - (middle - first) <= r:
                    low = middle + 1
                else:
                    high = middle
            sampled[i, k] = r + low - first
