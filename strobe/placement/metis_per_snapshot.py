"""Every snapshot in parts of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strobe.graph import DynamicGraph
from strobe.placement.base import Placed, Placement
from strobe.placement.loads import loads_of_cells
from strobe.placement.partition import partition
from strobe.placement.staying import renamed
from strobe.placement.union import links
from strobe.placement.work import Work


@dataclass(frozen=True, kw_only=True)
class MetisPerSnapshot(Placement):
    """METIS on each snapshot alone; its parts go to the ranks such that most nodes stay where they last were.

    Every snapshot is even and has few edges cut, but nodes change ranks between snapshots.
    """

    name: ClassVar[str] = "metis-per-snapshot"

    def place(
        self, graph: DynamicGraph, windows: Sequence[range], num_ranks: int, *, seed: int = 0, work: Work | None = None
    ) -> Placed:
        del windows, work
        of_cell = np.zeros(graph.num_cells, np.int16)
        last = np.full(graph.num_nodes, -1, np.int16)
        for snapshot in graph if num_ranks > 1 else ():
            part = partition(links(snapshot), loads_of_cells(snapshot), num_ranks, seed)
            owner = renamed(part, last[snapshot.nodes], num_ranks)
            of_cell[graph.cell_ptr[snapshot.t] : graph.cell_ptr[snapshot.t + 1]] = owner
            last[snapshot.nodes] = owner
        return Placed.by_cell(num_ranks, of_cell, graph)
