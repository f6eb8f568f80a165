"""Snapshots that are older than the window: on disk, read back when somebody asks for them."""

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
from strobe.graph.features import given
from strobe.io.temporary import TemporaryFolder
from strobe.ops.csr import FloatArray, IntArray


class Whole(NamedTuple):
    """A snapshot as it was given: nodes, arcs as rows, and the features that are stored per cell, [n, F]."""

    nodes: IntArray
    row_ptr: IntArray
    col: IntArray
    weight: FloatArray | None
    x: Array


class Older(ABC):
    """Where snapshots are that memory does not hold."""

    @abstractmethod
    def write(self, t: int, snapshot: Whole) -> None:
        """Takes a snapshot that falls out of the window."""

    @abstractmethod
    def read(self, t: int) -> Whole:
        """One that fell out."""


class Folder(Older):
    """A new folder of files, one per array of a snapshot, read page by page as they are used.

    It is made in ``parent``, or where the system has temporary files, and removed when nobody needs it any more.
    Every rank has its own. A process that is killed leaves it behind.
    """

    def __init__(self, parent: str | None = None) -> None:
        self._parent = parent
        self.path: Path | None = None  # made when there is something to write
        self._kinds: dict[Path, tuple[np.dtype[Any], tuple[int, ...]]] = {}

    def write(self, t: int, snapshot: Whole) -> None:
        if self.path is None:
            self.path = self._made()
        for name, array in snapshot._asdict().items():
            if array is not None:
                file = self._file(t, name)
                array.tofile(file)
                self._kinds[file] = array.dtype, array.shape

    def read(self, t: int) -> Whole:
        return Whole(**{name: self._mapped(self._file(t, name)) for name in Whole._fields})

    def _mapped(self, file: Path) -> Any:
        """The array of a file; None where there is none. Its kind is known, so that threads need not find it out: in
        Python 3.11 no two of them may read headers of .npy files at a time."""
        if file not in self._kinds:
            return None
        dtype, shape = self._kinds[file]
        if 0 in shape:
            return np.empty(shape, dtype)
        return np.asarray(np.memmap(file, dtype, "r", shape=shape))

    def _file(self, t: int, name: str) -> Path:
        assert self.path is not None
        return self.path / f"{t}.{name}"

    def _made(self) -> Path:
        try:
            folder = TemporaryFolder("older", self._parent)
        except OSError as error:
            raise OptionError(f"older snapshots cannot be kept in a folder that is not there: {error}") from error
        # A process that was forked from this one knows the folder, too, but it is not its own to remove.
        weakref.finalize(self, _remove, folder, os.getpid())
        return folder.path


class WhereTheyAre(Older):
    """Snapshots of a graph that is memory-mapped: they are on disk already."""

    def __init__(self, graph: DynamicGraph) -> None:
        self._graph = graph

    def write(self, t: int, snapshot: Whole) -> None:
        """Nothing to do."""

    def read(self, t: int) -> Whole:
        return whole(self._graph[t])


def whole(snapshot: Snapshot) -> Whole:
    """A snapshot with the rows of features that are stored for its cells; none, where others are or are derived."""
    bottom = given(snapshot.features)
    x = bottom.rows(snapshot) if isinstance(bottom, PerCell) else np.empty((snapshot.num_nodes, 0), np.float32)
    return Whole(snapshot.nodes, snapshot.row_ptr, snapshot.col, snapshot.weight, x)


def is_mapped(graph: DynamicGraph) -> bool:
    """Whether all that a window keeps of a graph is in files."""
    bottom = given(graph.features)
    return graph.storage.mapped and (not isinstance(bottom, PerCell) or bottom.mapped)


def _remove(folder: TemporaryFolder, process: int) -> None:
    if os.getpid() == process:
        folder.remove()
