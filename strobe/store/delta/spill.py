"""Snapshots older than the window, on disk."""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from strobe.errors import OptionError
from strobe.graph import DynamicGraph, PerCell, Snapshot
from strobe.graph.arrays import Array
from strobe.graph.features import find_stored
from strobe.io.temporary import TemporaryFolder
from strobe.ops.sparse.csr import FloatArray, IntArray


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
