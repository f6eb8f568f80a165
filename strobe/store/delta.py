"""Differences between snapshots: the last ones in memory, older ones on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strobe.errors import OptionError
from strobe.graph import Carrier, DynamicGraph, PerCell
from strobe.graph.arrays import Array, read_only
from strobe.graph.features import BySnapshot, given, resting_on
from strobe.graph.storage import Rows, Stored
from strobe.ops.csr import IntArray
from strobe.store.base import KeptRows, Store
from strobe.store.older import Folder, Older, WhereTheyAre, is_mapped, whole
from strobe.store.segments import Segments
from strobe.store.window import Window


@dataclass(frozen=True, kw_only=True)
class Delta(Store):
    """Snapshots as differences: changed segments of features, inserted and deleted edges; the last ones in memory.

    The last ``window`` snapshots are in memory: the first of them whole, of each later one what changed. A row of
    features stored per cell is cut into ``segments``, of which those that changed are kept, and whole rows of nodes
    that were not there in the snapshot before; edges are inserts, deletes and new weights. Older snapshots are on disk:
    where they are, if the graph is memory-mapped, else in a folder that is made in ``folder`` (where the system has
    temporary files) and removed at the end. Features per node, derived ones and labels stay as they are.

    Exact, to the bit. Memory: the first snapshot and changes of ``window`` - 1 more, and two snapshots that are kept
    rebuilt. Time: each snapshot is rebuilt when it is first asked for; in order, from the one before.
    """

    name: ClassVar[str] = "delta"
    segments: int = 4
    window: int = 8
    folder: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.segments < 1:
            raise OptionError(f"store delta cuts a row into 1 segment or more, not {self.segments}")
        if self.window < 1:
            raise OptionError(f"store delta keeps 1 snapshot or more in memory, not {self.window}")

    def rows(self) -> KeptRows:
        return Segments(self.segments)

    def keep(self, graph: DynamicGraph) -> DynamicGraph:
        older, first = self._older(graph)
        window = Window(
            num_nodes=graph.num_nodes,
            directed=graph.directed,
            size=self.window,
            older=older,
            segments=self.segments,
            start=first,
        )
        arcs, edges = [0], []
        for snapshot in graph:
            arcs.append(snapshot.num_arcs)
            edges.append(snapshot.num_edges)
            if snapshot.t >= first:
                window.add(whole(snapshot))
        storage = Differences(
            num_nodes=graph.num_nodes,
            directed=graph.directed,
            times=graph.times,
            cell_ptr=graph.cell_ptr,
            arc_ptr=read_only(np.cumsum(arcs, dtype=np.int64)),
            edge_count=read_only(np.array(edges, np.int64)),
            has_weights=graph.weighted,
            window=window,
        )
        features, labels = _features(graph, window), _labels(graph)
        return DynamicGraph(storage, features=features, labels=labels, names=graph.names, info=graph.info)

    def _older(self, graph: DynamicGraph) -> tuple[Older, int]:
        """Where older snapshots go, and the first one that has to be added."""
        if self.folder is None and is_mapped(graph):
            return WhereTheyAre(graph), max(0, len(graph) - self.window)
        return Folder(self.folder), 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Differences(Stored):
    """Snapshots that a window rebuilds."""

    has_weights: bool
    window: Window

    @property
    def weighted(self) -> bool:
        return self.has_weights

    @property
    def nbytes(self) -> int:
        counts = (self.cell_ptr, self.arc_ptr, self.edge_count)
        return self.window.nbytes + sum(int(array.nbytes) for array in counts)

    @property
    def mapped(self) -> bool:
        return False

    def nodes(self, t: int) -> IntArray:
        return self.window.nodes(t)

    def rows(self, t: int) -> Rows:
        return self.window.rows(t)


@dataclass(frozen=True, eq=False)
class Rebuilt(BySnapshot):
    """Features per cell that a window rebuilds."""

    window: Window

    @property
    def mapped(self) -> bool:
        return False

    def at(self, t: int) -> Array:
        return self.window.x(t)


def _features(graph: DynamicGraph, window: Window) -> Carrier | None:
    """The graph's features; those stored per cell come out of the window."""
    bottom = given(graph.features)
    if graph.features is None or not isinstance(bottom, PerCell):
        return graph.features
    return resting_on(graph.features, Rebuilt(bottom.values[:0].copy(), graph.cell_ptr, window))


def _labels(graph: DynamicGraph) -> Carrier | None:
    """The graph's labels; of a view, those of the cells it shows."""
    bottom = given(graph.labels)
    if graph.labels is None or not isinstance(bottom, PerCell) or (graph.window is None and graph.kept is None):
        return graph.labels
    shown = [bottom.values[:0], *(bottom.rows(snapshot) for snapshot in graph)]
    return resting_on(graph.labels, PerCell(np.concatenate(shown)))
