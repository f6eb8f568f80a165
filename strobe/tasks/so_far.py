"""What answers that need no learning know of edges so far."""

from __future__ import annotations

import numpy as np

from strobe.graph import Snapshot
from strobe.ops.csr import IntArray
from strobe.tasks.pairs import Keys, contains, edge_keys, merged
from strobe.tasks.runs import with_one_more


class SoFar:
    """Pairs that have had an edge, those of the last snapshot read, and how many edges reached each node.

    Snapshots are read in order of time. Memory: 8 bytes for each distinct pair.
    """

    def __init__(self) -> None:
        self.num_read = 0
        self._seen: tuple[Keys, ...] = ()
        self._now: Keys = np.empty(0, np.int64)
        self._reached: IntArray = np.empty(0, np.int64)

    def read(self, snapshot: Snapshot) -> None:
        """The next one."""
        assert snapshot.t == self.num_read
        self.num_read += 1
        self._now = edge_keys(snapshot)
        self._seen = with_one_more(self._seen, self._now, merged)
        if snapshot.num_nodes:
            self._reached = np.pad(self._reached, (0, max(int(snapshot.nodes[-1]) + 1 - len(self._reached), 0)))
            self._reached[snapshot.nodes] += snapshot.in_degree

    def has_now(self, keys: Keys) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which pairs have an edge in the last snapshot."""
        return contains(self._now, keys)

    def has_had(self, keys: Keys) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which pairs have one in any."""
        found = np.zeros(len(keys), bool)
        for run in self._seen:
            found |= contains(run, keys)
        return found

    def reached(self, nodes: IntArray) -> IntArray:
        """How many edges reached nodes that have been present."""
        return self._reached[nodes]
