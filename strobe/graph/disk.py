"""Graphs on disk: one directory of plain .npy arrays and a graph.json, checksummed, written atomically.

The arrays are memory-mapped on open. A graph is written into a hidden directory beside its target and renamed
when every byte has reached the disk: a killed write leaves nothing that opens.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np

from strobe.errors import FormatError, InputError, OptionError, StrobeError
from strobe.graph.arrays import Array
from strobe.graph.build import Edges, GraphBuilder
from strobe.graph.checked import checked_graphs, digest_of, has_settled
from strobe.graph.column import Column, map_npy, npy_header
from strobe.graph.contents import OnBytes, check_contents
from strobe.graph.description import META, SAVED, beside, is_growing, read_description, sealed
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Carrier, PerCell, from_recipe, given
from strobe.graph.id_space import refuse_vast
from strobe.graph.lock import WriteLock
from strobe.graph.names import NodeNames
from strobe.graph.progress import OnProgress
from strobe.graph.snapshot import Snapshot
from strobe.graph.storage import ARRAYS, Storage
from strobe.io.atomic import disk_is_full, sync_folder

_SHOWN_FROM = 64 << 20  # bytes: less is checked before anybody could read how far it is
_ATTEMPTS = 10


class DiskSink:
    """Writes a graph's arrays into a hidden directory that becomes the target when it is finished.

    What a builder needs on the way goes to ``scratch_dir``, which is gone by then. Use it as a context manager:
    leaving it without ``finish`` removes what was written. A second writer of the same target, in this process or
    another, is refused.
    """

    def __init__(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        self.target = Path(path).resolve()  # a link is written through, not replaced
        self._overwrite = overwrite
        self._finished = False
        self._columns: dict[str, Column] = {}
        self._dir, self._aside = beside(self.target, "writing"), beside(self.target, "replaced")
        self.scratch_dir: Path | None = beside(self.target, "scratch")
        try:
            self.target.parent.mkdir(parents=True, exist_ok=True)
            self._lock = WriteLock(self.target)
            try:
                self._clear_up()
                refuse_target(self.target, overwrite)
                self._dir.mkdir()
                beside(self.target, "scratch").mkdir()
            except BaseException:
                self._lock.release()
                raise
        except OSError as error:
            raise OptionError(f"cannot write to {self.target}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._finished:
            return  # another writer may be at work by now
        for column in self._columns.values():
            column.abandon()
        self._remove_own()
        self._lock.release()
        if disk_is_full(error):
            raise StrobeError(
                f"the disk is full: {self.target} was not written, and nothing of it is left behind. "
                "Free some space or choose another place."
            ) from error

    def append(self, name: str, rows: Array) -> None:
        if name not in self._columns:
            self._columns[name] = Column(self._dir / f"{name}.npy")
        self._columns[name].append(rows)

    def arrays(self) -> dict[str, Array]:
        for column in self._columns.values():
            column.flush()
        return {name: column.mapped() for name, column in self._columns.items()}

    def finish(self, graph: DynamicGraph) -> DynamicGraph:
        for column in self._columns.values():
            column.close()
        described = {
            "num_nodes": graph.num_nodes,
            "directed": graph.directed,
            "times": list(graph.times),
            "features": None if graph.features is None else graph.features.recipe(),
            "labels": None if graph.labels is None else graph.labels.recipe(),
            "info": dict(graph.info),
            "arrays": {name: column.describe() for name, column in sorted(self._columns.items())},
        }
        meta = sealed(described, SAVED)
        with (self._dir / META).open("w") as file:
            json.dump(meta, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        shutil.rmtree(beside(self.target, "scratch"), ignore_errors=True)
        self._publish()
        opened = self._opened(meta)
        self._finished = True
        self._lock.release()
        return opened

    def _opened(self, meta: Mapping[str, Any]) -> DynamicGraph:
        """The graph from where it is now. Its indices are those that the builder made, so they are not checked."""
        return _assembled(self.target, meta, _mapped(self.target, meta)[0])

    def _publish(self) -> None:
        sync_folder(self._dir)
        if self.target.exists():
            refuse_target(self.target, self._overwrite)
            self.target.rename(self._aside)
        try:
            self._dir.rename(self.target)
        except OSError:
            if self._aside.exists():
                self._aside.rename(self.target)
            raise
        sync_folder(self.target.parent)
        _remove_graph(self._aside)

    def _remove_own(self) -> None:
        for folder in (self._dir, beside(self.target, "scratch")):
            shutil.rmtree(folder, ignore_errors=True)

    def _clear_up(self) -> None:
        """After a writer of this target that was killed: a graph it had moved aside comes back."""
        self._remove_own()
        if (self._aside / META).is_file() and not self.target.exists():
            self._aside.rename(self.target)
        _remove_graph(self._aside)


def save(graph: DynamicGraph, path: str | PathLike[str], *, overwrite: bool = False) -> DynamicGraph:
    """Writes a graph, or what a view shows of it, snapshot by snapshot, and opens the result."""
    with DiskSink(path, overwrite=overwrite) as sink:
        builder = GraphBuilder(sink, num_nodes=graph.num_nodes, directed=graph.directed, weighted=graph.weighted)
        for snapshot in graph:
            builder.add(
                Edges(*snapshot.edges()),
                nodes=None if snapshot.has_all_nodes else snapshot.nodes,
                time=snapshot.time,
                x=_cell_rows(graph.features, snapshot),
                y=_cell_rows(graph.labels, snapshot),
            )
        return builder.finish(
            features=_without_cells(graph.features),
            labels=_without_cells(graph.labels),
            names=graph.names,
            info=graph.info,
        )


def _cell_rows(carrier: Carrier | None, snapshot: Snapshot) -> Array | None:
    """The snapshot's own rows of what is stored per cell, under whatever is derived from them."""
    bottom = given(carrier)
    return bottom.rows(snapshot) if isinstance(bottom, PerCell) else None


def _without_cells(carrier: Carrier | None) -> Carrier | None:
    """The carrier as ``GraphBuilder.finish`` wants it when its rows per cell went with the snapshots."""
    bottom = given(carrier)
    if carrier is None or not isinstance(bottom, PerCell):
        return carrier
    return from_recipe(carrier.recipe(), bottom.values[:0])


def open_graph(
    path: str | PathLike[str], *, verify: bool = False, on_progress: OnProgress | None = None
) -> DynamicGraph:
    """Opens a saved graph: arrays are memory-mapped, so size costs neither time nor memory.

    The first time, every array is compared with its checksum and every index in it checked: nothing that reads the
    graph later can be led outside of its arrays. That is remembered in the user's cache folder, by the size, times and
    inode of every file, and not done again until a file changes. Files must not be written to while they are open.

    A graph that is replaced meanwhile is opened whole, before or after; never a mixture of both. Of a graph that grows,
    the snapshots that are there, each of which is checked when it is first read.

    Args:
        path: the directory.
        verify: check everything now, also what was checked before.
        on_progress: called with (MiB checked, MiB in all) while a large graph is checked.

    Raises:
        FormatError: there is no graph, or it is damaged, or not what Strobe writes.
    """
    folder = Path(path)
    graph = _open_whole(folder, verify, on_progress)
    object.__setattr__(graph, "path", folder.resolve())
    return graph


def _open_whole(folder: Path, verify: bool, on_progress: OnProgress | None) -> DynamicGraph:
    if is_growing(folder):
        from strobe.graph.growing import Growing

        return Growing(folder).open(verify=verify, on_progress=on_progress)
    for _ in range(_ATTEMPTS):
        before = _identity(folder)
        try:
            graph = _open(folder, verify, on_progress)
        except (FormatError, FileNotFoundError):
            if _identity(folder) == before:
                raise
        else:
            if _identity(folder) == before:
                return graph
    raise FormatError(f"{folder} is replaced again and again while it is being opened")


def _open(folder: Path, verify: bool, on_progress: OnProgress | None) -> DynamicGraph:
    meta = read_description(folder)
    arrays = open_arrays(folder, meta, verify=verify, on_progress=on_progress)
    refuse_vast(folder, meta["num_nodes"], int(arrays["cell_ptr"][-1]))
    return _assembled(folder, meta, arrays)


def _assembled(folder: Path, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> DynamicGraph:
    storage = Storage(
        num_nodes=meta["num_nodes"],
        directed=meta["directed"],
        times=tuple(meta["times"]),
        **{name: arrays.get(name) for name in ARRAYS},  # type: ignore[arg-type]
    )
    graph = DynamicGraph(storage, names=NodeNames.from_arrays(arrays), info=meta["info"])
    with refused_as_format(folder):
        graph = graph.with_features(from_recipe(meta["features"], arrays.get("x")))
        return graph.with_labels(from_recipe(meta["labels"], arrays.get("y")))


@contextlib.contextmanager
def refused_as_format(folder: Path) -> Iterator[None]:
    """What would be refused if a user gave it is refused as a fault of the file it comes from."""
    try:
        yield
    except InputError as error:
        raise FormatError(f"{folder} is no valid graph: {error}") from error


def open_arrays(
    folder: Path, meta: Mapping[str, Any], *, verify: bool = False, on_progress: OnProgress | None = None
) -> dict[str, Array]:
    """The arrays of a saved graph, mapped and checked; arguments as in ``open_graph``."""
    arrays, files = _mapped(folder, meta)
    known, digest = checked_graphs(), digest_of(meta, files)
    if not verify and digest in known:
        return arrays
    settled = has_settled(files.values())
    check_contents(folder, meta, arrays, _in_mebibytes(on_progress, sum(array.nbytes for array in arrays.values())))
    if settled:
        known.add(digest)
    return arrays


def _mapped(folder: Path, meta: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, os.stat_result]]:
    """The arrays as their files are now, unchecked, and what the files are known by."""
    opened = {name: _open_array(folder, name, entry) for name, entry in meta["arrays"].items()}
    return {name: array for name, (array, _) in opened.items()}, {name: file for name, (_, file) in opened.items()}


def _in_mebibytes(on_progress: OnProgress | None, total: int) -> OnBytes:
    """Progress in bytes, from any thread, as progress in MiB; none of what takes no time."""
    if on_progress is None or total < _SHOWN_FROM:
        return lambda done: None
    lock, so_far = Lock(), 0

    def on_bytes(done: int) -> None:
        nonlocal so_far
        with lock:
            so_far += done
            on_progress(so_far >> 20, total >> 20)

    return on_bytes


def _identity(folder: Path) -> tuple[int, int] | None:
    """What changes when another graph takes the place of this one; None where there is nothing."""
    try:
        status = folder.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def _open_array(folder: Path, name: str, entry: dict[str, Any]) -> tuple[Array, os.stat_result]:
    """An array and the file it is mapped from: one that takes the file's place meanwhile is not looked at."""
    path = folder / f"{name}.npy"
    dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
    header = npy_header(dtype, shape)
    expected = len(header) + math.prod(shape) * dtype.itemsize
    if not path.is_file():
        raise FormatError(f"{folder} is incomplete: {name}.npy is missing")
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size != expected:
                raise FormatError(f"{path} is damaged: {status.st_size:,} bytes where {expected:,} belong")
            if file.read(len(header)) != header:
                raise FormatError(f"{path} is damaged: its header does not match {META}")
            return map_npy(file, dtype, shape), status
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror or error}") from error


def refuse_target(target: Path, overwrite: bool) -> None:
    """Raises where a graph must not be written."""
    if not target.exists():
        return
    if not (target / META).is_file():
        raise OptionError(f"{target} exists and is not a graph: it is left alone. Choose another place.")
    if not overwrite:
        raise OptionError(
            f"{target} already holds a graph: choose another place, or have it replaced (overwrite=True, --overwrite)"
        )


def _remove_graph(folder: Path) -> None:
    """Its description first: what a killed removal leaves is no graph."""
    with contextlib.suppress(OSError):
        (folder / META).unlink()
    shutil.rmtree(folder, ignore_errors=True)
