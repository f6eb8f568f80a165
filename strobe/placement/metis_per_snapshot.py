"""Every snapshot in parts of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from strobe.graph import Snapshot
from strobe.ops.csr import IntArray
from strobe.placement.arriving import Arriving, AsTheyArrive, reaching
from strobe.placement.loads import loads_of_cells
from strobe.placement.partition import partition
from strobe.placement.staying import renamed
from strobe.placement.union import links


@dataclass(frozen=True, kw_only=True)
class MetisPerSnapshot(AsTheyArrive):
    """METIS on each snapshot alone; its parts go to the ranks such that most nodes stay where they last were.

    Every snapshot is even and has few edges cut, but nodes change ranks between snapshots.
    """

    name: ClassVar[str] = "metis-per-snapshot"

    def start(self, num_ranks: int, *, seed: int = 0) -> Arriving:
        """Nobody was anywhere yet."""
        return _Anew(num_ranks, seed)


class _Anew(Arriving):
    def __init__(self, num_ranks: int, seed: int) -> None:
        self._num_ranks, self._seed = num_ranks, seed
        self._last: IntArray = np.empty(0, np.int16)  # where each node had its latest cell, [N]

    def arrive(self, snapshot: Snapshot) -> IntArray:
        if self._num_ranks == 1:
            return np.zeros(snapshot.num_nodes, np.int16)
        part = partition(links(snapshot), loads_of_cells(snapshot), self._num_ranks, self._seed)
        self._last = reaching(self._last, snapshot)
        owners = renamed(part, self._last[snapshot.nodes], self._num_ranks).astype(np.int16)
        self._last[snapshot.nodes] = owners
        return owners

    def remembered(self) -> dict[str, Any]:
        return {"last": self._last.copy()}

    def recall(self, found: dict[str, Any]) -> None:
        self._last = np.array(found["last"], np.int16)
