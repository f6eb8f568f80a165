"""Blocks of time of the same load: where one ends within a snapshot, the next one has the rest of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from strobe.graph import DynamicGraph
from strobe.ops.csr import FloatArray, IntArray
from strobe.placement.base import cell_loads
from strobe.placement.division import divided

SNAP = 0.015
"""A block may end so much of its load earlier or later if that leaves a snapshot whole, and one that shares a snapshot
may have so much more or less of it: with two ends the slowest rank has 3 % too much at most."""


@dataclass(frozen=True, eq=False)
class Borders:
    """Where blocks of all snapshots of a graph end, in load, laid end to end."""

    graph: DynamicGraph
    ends: FloatArray  # [W + 1], with where the first begins
    edges: FloatArray  # [T + 1], of snapshots

    @classmethod
    def of(cls, graph: DynamicGraph, num_ranks: int) -> Borders:
        """Blocks of the same load; borders near the edge of a snapshot are moved there."""
        edges = np.concatenate(([0], np.cumsum(cell_loads(graph)))).astype(np.float64)
        share = edges[-1] / num_ranks
        ends = share * np.arange(num_ranks + 1)
        after = np.clip(np.searchsorted(edges, ends), 1, len(graph))
        nearest = np.where(ends - edges[after - 1] < edges[after] - ends, edges[after - 1], edges[after])
        return cls(graph, np.where(np.abs(nearest - ends) <= SNAP * share, nearest, ends), edges)

    @property
    def num_ranks(self) -> int:
        return self.ends.size - 1

    @property
    def in_pairs(self) -> bool:
        """Whether no snapshot is shared by more than two ranks, and about half of all are whole at least."""
        first, last = self._ranks()
        return bool((last - first).max(initial=0) <= 1) and len(self.graph) >= 2 * self.num_ranks

    def owners(self, seed: int = 0) -> list[IntArray]:
        """The owner of every cell of every snapshot."""
        slack = SNAP * float(self.edges[-1]) / self.num_ranks
        found: list[IntArray] = []
        for t, (first, last) in enumerate(zip(*self._ranks(), strict=True)):
            if first == last:
                found.append(np.full(self.graph[t].num_nodes, first, np.int16))
                continue
            shares = np.diff(np.clip(self.ends[first : last + 2], *self.edges[t : t + 2]))
            found.append((first + divided(self.graph, t, shares, slack, seed)).astype(np.int16))
        return found

    def _ranks(self) -> tuple[IntArray, IntArray]:
        """The first and the last rank that have something of each snapshot, [T] each."""
        first = np.minimum(np.searchsorted(self.ends, self.edges[:-1], "right"), self.num_ranks) - 1
        return first, np.maximum(np.searchsorted(self.ends, self.edges[1:]) - 1, first)
