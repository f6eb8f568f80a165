"""Snapshots as differences: the last ones in memory, older ones on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strobe.errors import OptionError
from strobe.graph import DynamicGraph, FeatureProvider, PerCell
from strobe.graph.arrays import Array, read_only
from strobe.graph.features import LazyPerCell, find_stored, replace_stored
from strobe.graph.storage import Csr, GraphStorage
from strobe.ops.sparse.csr import IntArray
from strobe.store.base import RowStore, Store
from strobe.store.delta.features import FeatureWindow
from strobe.store.delta.spill import DiskSpill, MappedSpill, Spill, is_mapped, to_arrays
from strobe.store.delta.window import SnapshotWindow


@dataclass(frozen=True, kw_only=True)
class Delta(Store):
    """Snapshots as differences: changed feature segments, inserted and deleted edges; the last ones in memory.

    Bit-exact. Memory: one full snapshot, ``window`` - 1 differences, and two rebuilt snapshots. Time: a snapshot is
    rebuilt at its first use, from the one before if read in order. Features per node, derived features and labels are
    not changed.

    Args:
        segments: segments of a feature row (per-cell features); of nodes present in the previous snapshot only changed
            segments are stored.
        window: snapshots in memory. Older ones are read from the memory-mapped graph, or else spilled to disk.
        folder: parent of the temporary spill folder; None for the system's.
    """

    name: ClassVar[str] = "delta"
    segments: int = 4
    window: int = 8
    folder: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.segments < 1:
            raise OptionError(f"segments of store delta must be at least 1, not {self.segments}")
        if self.window < 1:
            raise OptionError(f"window of store delta must be at least 1, not {self.window}")

    def row_store(self) -> RowStore:
        return FeatureWindow(self.segments)

    def wrap(self, graph: DynamicGraph) -> DynamicGraph:
        spill, first = self._make_spill(graph)
        window = SnapshotWindow(
            num_nodes=graph.num_nodes,
            directed=graph.directed,
            size=self.window,
            spill=spill,
            segments=self.segments,
            start=first,
        )
        arcs, edges = [0], []
        for snapshot in graph:
            arcs.append(snapshot.num_arcs)
            edges.append(snapshot.num_edges)
            if snapshot.t >= first:
                window.add(to_arrays(snapshot))
        storage = DeltaStorage(
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

    def _make_spill(self, graph: DynamicGraph) -> tuple[Spill, int]:
        """Spill of older snapshots, and the first snapshot to add."""
        if self.folder is None and is_mapped(graph):
            return MappedSpill(graph), max(0, len(graph) - self.window)
        return DiskSpill(self.folder), 0


@dataclass(frozen=True, eq=False, kw_only=True)
class DeltaStorage(GraphStorage):
    """Storage whose snapshots are rebuilt from differences."""

    has_weights: bool
    window: SnapshotWindow

    @property
    def weighted(self) -> bool:
        return self.has_weights

    @property
    def nbytes(self) -> int:
        counts = (self.cell_ptr, self.arc_ptr, self.edge_count)
        return self.window.nbytes + sum(int(array.nbytes) for array in counts)

    @property
    def is_memory_mapped(self) -> bool:
        return False

    def nodes(self, t: int) -> IntArray:
        return self.window.nodes(t)

    def csr(self, t: int) -> Csr:
        return self.window.rows(t)


@dataclass(frozen=True, eq=False)
class RebuiltFeatures(LazyPerCell):
    """Features per cell rebuilt from differences."""

    window: SnapshotWindow

    @property
    def is_memory_mapped(self) -> bool:
        return False

    def rows_at(self, t: int) -> Array:
        return self.window.x(t)


def _features(graph: DynamicGraph, window: SnapshotWindow) -> FeatureProvider | None:
    """Features of the graph; those per cell are rebuilt by the window."""
    stored = find_stored(graph.features)
    if graph.features is None or not isinstance(stored, PerCell):
        return graph.features
    return replace_stored(graph.features, RebuiltFeatures(stored.values[:0].copy(), graph.cell_ptr, window))


def _labels(graph: DynamicGraph) -> FeatureProvider | None:
    """Labels of the graph; of a view, those of its cells."""
    stored = find_stored(graph.labels)
    if graph.labels is None or not isinstance(stored, PerCell) or (graph.window is None and graph.node_subset is None):
        return graph.labels
    labels = [stored.values[:0], *(stored.rows(snapshot) for snapshot in graph)]
    return replace_stored(graph.labels, PerCell(np.concatenate(labels)))
