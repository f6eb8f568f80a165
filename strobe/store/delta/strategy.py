"""Snapshots as differences: the last ones in memory, older ones on disk."""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from strobe.errors import OptionError
from strobe.graph import DynamicGraph, FeatureProvider, PerCell, Snapshot
from strobe.graph.arrays import Array, read_only
from strobe.graph.diff import KeyedArcs, key_arcs
from strobe.graph.features import LazyPerCell, find_stored, replace_stored
from strobe.graph.storage import GraphStorage, number_by_appearance
from strobe.io.temporary import TemporaryFolder
from strobe.ops.sparse.csr import Csr, FloatArray, IntArray
from strobe.store.base import RowStore, Store
from strobe.store.delta.edges import ArcWindow, to_csr
from strobe.store.delta.features import FeatureWindow

NUM_REBUILT = 2
"""Rebuilt snapshots in the cache: the next one is built from the previous."""


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
        arcs, edges, structures = [0], [], graph.structures.tolist()
        for t, snapshot in enumerate(graph):
            arcs.append(snapshot.num_arcs)
            edges.append(snapshot.num_edges)
            if t >= first:
                window.add(to_arrays(snapshot), repeats=t > first and structures[t] == structures[t - 1])
        storage = DeltaStorage(
            num_nodes=graph.num_nodes,
            directed=graph.directed,
            times=graph.times,
            cell_ptr=graph.cell_ptr,
            arc_ptr=read_only(np.cumsum(arcs, dtype=np.int64)),
            edge_count=read_only(np.array(edges, np.int64)),
            structure=None if graph.storage.structure is None else number_by_appearance(graph.structures),
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


@dataclass
class _RebuiltSnapshot:
    """Parts of a snapshot rebuilt so far."""

    nodes: IntArray
    arcs: KeyedArcs | None = None
    rows: Csr | None = None
    x: Array | None = None


class SnapshotWindow:
    """Snapshots in order of time; the last ``size`` are in memory as differences, older ones in ``spill``.

    Adding a snapshot to a full window spills the oldest and applies the first difference. Snapshots are rebuilt
    bit-exactly. Reads are thread-safe.
    """

    def __init__(
        self, *, num_nodes: int, directed: bool, size: int, spill: Spill, segments: int = 4, start: int = 0
    ) -> None:
        self._num_nodes, self._directed, self._size, self._spill = num_nodes, directed, size, spill
        self._segments, self._arcs = FeatureWindow(segments), ArcWindow(num_nodes)
        self._next = start
        self._dtypes: tuple[np.dtype[np.generic], np.dtype[np.generic]] | None = None  # row_ptr, col
        self._recent: OrderedDict[int, _RebuiltSnapshot] = OrderedDict()
        self._first_alike: dict[int, int] = {}  # of snapshots with the nodes and arcs of the previous one
        self._lock = threading.RLock()

    @property
    def times(self) -> list[int]:
        """Snapshots in memory, ascending."""
        return self._segments.times

    def add(self, snapshot: SnapshotArrays, *, repeats: bool = False) -> int:
        """Add the next snapshot and return its number.

        Args:
            snapshot: its arrays.
            repeats: whether its nodes, arcs and weights are those of the previous snapshot.
        """
        with self._lock:
            t, self._next = self._next, self._next + 1
            if len(self.times) == self._size:
                self._slide()
            if self._dtypes is None:
                self._dtypes = snapshot.row_ptr.dtype, snapshot.col.dtype
            rebuilt = _RebuiltSnapshot(np.array(snapshot.nodes))
            if repeats and t - 1 in self.times:
                self._first_alike[t] = self._first_alike.get(t - 1, t - 1)
                self._arcs.repeat(t)
            else:
                rows = snapshot.row_ptr, snapshot.col, snapshot.weight
                rebuilt.arcs = key_arcs(snapshot.nodes, rows, self._num_nodes, directed=self._directed)
                self._arcs.add(t, rebuilt.arcs, self._nearest_arcs(t))
            self._segments.add(t, snapshot.nodes, snapshot.x)
            self._cache(t, rebuilt)
            return t

    def nodes(self, t: int) -> IntArray:
        """Nodes present at t, ascending."""
        return read_only(self._rebuild(t).nodes)

    def rows(self, t: int) -> Csr:
        """Arcs of t by destination."""
        with self._lock:
            rebuilt = self._rebuild(t)
            if rebuilt.rows is None:
                rebuilt.rows = self._rows_alike(t)
            if rebuilt.rows is None:
                if rebuilt.arcs is None:
                    rebuilt.arcs = self._arcs.arcs_at(t, self._nearest_arcs(t))
                row_ptr, col, weight = to_csr(rebuilt.arcs, rebuilt.nodes, self._num_nodes, directed=self._directed)
                assert self._dtypes is not None
                row_ptr, col = row_ptr.astype(self._dtypes[0], copy=False), col.astype(self._dtypes[1], copy=False)
                rebuilt.rows = row_ptr, col, weight
            return rebuilt.rows

    def x(self, t: int) -> Array:
        """Per-cell features of t, [n, F]."""
        with self._lock:
            rebuilt = self._rebuild(t)
            if rebuilt.x is None:
                cached = [(s, each.nodes, each.x) for s, each in self._recent.items() if s < t and each.x is not None]
                rebuilt.x = self._segments.rows(t, start_from=max(cached, key=lambda one: one[0], default=None))
            return read_only(rebuilt.x)

    @property
    def nbytes(self) -> int:
        """Bytes of the differences in memory, without rebuilt snapshots."""
        return self.features_bytes + self.arcs_bytes

    @property
    def features_bytes(self) -> int:
        """Bytes of nodes and their feature rows."""
        return self._segments.nbytes

    @property
    def arcs_bytes(self) -> int:
        return self._arcs.nbytes

    def arrays(self) -> Iterator[Array]:
        """All arrays of the differences."""
        yield from self._segments.arrays()
        yield from self._arcs.arrays()

    def _rows_alike(self, t: int) -> Csr | None:
        """Cached rows of a snapshot with the nodes and arcs of t."""
        first = self._first_alike.get(t, t)
        alike = (each.rows for s, each in self._recent.items() if self._first_alike.get(s, s) == first)
        return next((rows for rows in alike if rows is not None), None)

    def _slide(self) -> None:
        oldest = self.times[0]
        self._spill.write(oldest, SnapshotArrays(self.nodes(oldest), *self.rows(oldest), self.x(oldest)))
        self._recent.pop(oldest)  # from now on read from the spill
        self._segments.drop()
        self._arcs.drop()

    def _rebuild(self, t: int) -> _RebuiltSnapshot:
        with self._lock:
            if t in self._recent:
                self._recent.move_to_end(t)
                return self._recent[t]
            if t in self.times:
                return self._cache(t, _RebuiltSnapshot(self._segments.nodes(t)))
            nodes, row_ptr, col, weight, x = self._spill.read(t)
            return self._cache(t, _RebuiltSnapshot(nodes, None, (row_ptr, col, weight), x))

    def _cache(self, t: int, snapshot: _RebuiltSnapshot) -> _RebuiltSnapshot:
        self._recent[t] = snapshot
        while len(self._recent) > NUM_REBUILT:
            self._recent.popitem(last=False)
        return snapshot

    def _nearest_arcs(self, t: int) -> tuple[int, KeyedArcs] | None:
        """The latest cached arcs of a snapshot up to t."""
        cached = [(s, each.arcs) for s, each in self._recent.items() if s <= t and each.arcs is not None]
        return max(cached, key=lambda one: one[0], default=None)


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

    def nodes(self, t: int) -> IntArray:
        return self.window.nodes(t)

    def csr(self, t: int) -> Csr:
        return self.window.rows(t)


@dataclass(frozen=True, eq=False)
class RebuiltFeatures(LazyPerCell):
    """Features per cell rebuilt from differences."""

    window: SnapshotWindow

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


class SnapshotArrays(NamedTuple):
    """Nodes, arcs in CSR, and per-cell features [n, F] of a snapshot."""

    nodes: IntArray
    row_ptr: IntArray
    col: IntArray
    weight: FloatArray | None
    x: Array


class Spill(ABC):
    """Storage of snapshots that left the window."""

    @abstractmethod
    def write(self, t: int, snapshot: SnapshotArrays) -> None:
        """Store a snapshot that leaves the window."""

    @abstractmethod
    def read(self, t: int) -> SnapshotArrays:
        """Load a snapshot that left the window."""


class DiskSpill(Spill):
    """A temporary folder in ``parent`` (None: the system's) with one memory-mapped file per array.

    Each rank has its own. It is removed with this object; a killed process leaves it behind.
    """

    def __init__(self, parent: str | None = None) -> None:
        self._parent = parent
        self.path: Path | None = None  # created at the first write
        self._formats: dict[Path, tuple[np.dtype[Any], tuple[int, ...]]] = {}

    def write(self, t: int, snapshot: SnapshotArrays) -> None:
        if self.path is None:
            self.path = self._create()
        for name, array in snapshot._asdict().items():
            if array is not None:
                file = self._file(t, name)
                array.tofile(file)
                self._formats[file] = array.dtype, array.shape

    def read(self, t: int) -> SnapshotArrays:
        return SnapshotArrays(**{name: self._open(self._file(t, name)) for name in SnapshotArrays._fields})

    def _open(self, file: Path) -> Any:
        """Map the array of a file; None if absent. Raw files: reading .npy headers is not thread-safe in Python
        3.11."""
        if file not in self._formats:
            return None
        dtype, shape = self._formats[file]
        if 0 in shape:
            return np.empty(shape, dtype)
        return np.asarray(np.memmap(file, dtype, "r", shape=shape))

    def _file(self, t: int, name: str) -> Path:
        assert self.path is not None
        return self.path / f"{t}.{name}"

    def _create(self) -> Path:
        try:
            folder = TemporaryFolder("older", self._parent)
        except OSError as error:
            raise OptionError(f"cannot create a folder for older snapshots: {error}") from error
        # a forked process must not remove the folder
        weakref.finalize(self, _remove, folder, os.getpid())
        return folder.path


class MappedSpill(Spill):
    """Snapshots of a memory-mapped graph, which are on disk already."""

    def __init__(self, graph: DynamicGraph) -> None:
        self._graph = graph

    def write(self, t: int, snapshot: SnapshotArrays) -> None:
        """Do nothing: the snapshot is on disk."""

    def read(self, t: int) -> SnapshotArrays:
        return to_arrays(self._graph[t])


def to_arrays(snapshot: Snapshot) -> SnapshotArrays:
    """Arrays of a snapshot; without columns if features are not stored per cell."""
    stored = find_stored(snapshot.features)
    x = stored.rows(snapshot) if isinstance(stored, PerCell) else np.empty((snapshot.num_nodes, 0), np.float32)
    return SnapshotArrays(snapshot.nodes, snapshot.row_ptr, snapshot.col, snapshot.weight, x)


def is_mapped(graph: DynamicGraph) -> bool:
    """Whether all arrays that a window stores are memory-mapped."""
    stored = find_stored(graph.features)
    return graph.storage.is_memory_mapped and (not isinstance(stored, PerCell) or stored.is_memory_mapped)


def _remove(folder: TemporaryFolder, process: int) -> None:
    if os.getpid() == process:
        folder.remove()
