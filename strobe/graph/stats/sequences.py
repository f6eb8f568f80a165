"""Sequences: who is present when, for how long, and who comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from strobe.ops.csr import IntArray


@dataclass(frozen=True, kw_only=True)
class SequenceStats:
    """Cells per node. ``counts[k]`` nodes have k cells, k = 0..T; means are over nodes that ever appear."""

    mean: float
    median: int
    max: int
    counts: tuple[int, ...]
    num_never_present: int
    num_always_present: int
    num_nodes_with_gaps: int  # nodes that left and returned at least once
    num_gaps: int


class Turnover(NamedTuple):
    """Nodes that changed between a snapshot and the one before it."""

    arrivals: int  # never present before
    departures: int  # present in the snapshot before, absent now
    returns: int  # present before, but not in the snapshot before


class SequenceTally:
    """Follows the presence of N nodes through time: 9 bytes a node."""

    def __init__(self, num_nodes: int) -> None:
        self._length = np.zeros(num_nodes, np.int32)
        self._last = np.full(num_nodes, -1, np.int32)
        self._returned = np.zeros(num_nodes, np.bool_)
        self._t, self._present, self._gaps = 0, 0, 0

    def add(self, nodes: IntArray) -> Turnover:
        """Takes the next snapshot's nodes. In the first one, all are arrivals."""
        last = self._last[nodes]
        arrivals = int(np.count_nonzero(last == -1))
        stayed = int(np.count_nonzero(last == self._t - 1)) if self._t else 0
        back = nodes[(last != -1) & (last != self._t - 1)]
        turnover = Turnover(arrivals, self._present - stayed, int(back.size))
        self._length[nodes] += 1
        self._last[nodes] = self._t
        self._returned[back] = True
        self._t, self._present, self._gaps = self._t + 1, int(nodes.size), self._gaps + int(back.size)
        return turnover

    def finish(self) -> SequenceStats:
        counts = np.bincount(self._length, minlength=self._t + 1)
        lengths, nodes = np.arange(1, counts.size), counts[1:]
        seen = np.cumsum(nodes)
        ever = int(seen[-1]) if seen.size else 0
        return SequenceStats(
            mean=float((lengths * nodes).sum() / ever) if ever else 0.0,
            median=int(lengths[np.searchsorted(seen, (ever + 1) // 2)]) if ever else 0,
            max=int(np.flatnonzero(counts)[-1]) if ever else 0,
            counts=tuple(counts.tolist()),
            num_never_present=int(counts[0]),
            num_always_present=int(counts[-1]) if self._t else 0,
            num_nodes_with_gaps=int(np.count_nonzero(self._returned)),
            num_gaps=self._gaps,
        )
