"""Saved graphs: one directory of plain .npy arrays and a graph.json, checksummed, written atomically.

Arrays are memory-mapped on open. A graph is written into a hidden sibling directory and renamed when every byte has
reached the disk: a killed write leaves nothing that opens.
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
from strobe.graph.disk.column import Column, map_npy, npy_header
from strobe.graph.disk.metadata import (
    METADATA_FILE,
    SAVED_FORMAT,
    hidden_sibling,
    make_metadata,
)
from strobe.graph.disk.verification import OnBytes, check_contents, graph_digest, mtimes_are_stable, verification_cache
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import FeatureProvider, PerCell, find_stored, from_recipe
from strobe.graph.names import NodeNames
from strobe.graph.progress import OnProgress
from strobe.graph.snapshot import Snapshot
from strobe.graph.storage import ARRAYS, ArrayStorage
from strobe.io.atomic import disk_is_full, sync_folder
from strobe.io.lock import WriteLock

_PROGRESS_FROM_BYTES = 64 << 20  # a smaller graph is checked before progress could be read


class DiskSink:
    """Sink that writes arrays into a hidden directory, which becomes the target on ``finish``.

    ``scratch_dir`` is for temporary files of a builder. Use the sink as a context manager: leaving it without
    ``finish`` removes everything it wrote. A second writer of the same target, in any process, is refused.
    """

    def __init__(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        self.target = Path(path).resolve()  # a link is written through, not replaced
        self._overwrite = overwrite
        self._finished = False
        self._columns: dict[str, Column] = {}
        self._dir, self._aside = hidden_sibling(self.target, "writing"), hidden_sibling(self.target, "replaced")
        self.scratch_dir: Path | None = hidden_sibling(self.target, "scratch")
        try:
            self.target.parent.mkdir(parents=True, exist_ok=True)
            self._lock = WriteLock(self.target)
            try:
                self._recover()
                check_target(self.target, overwrite)
                self._dir.mkdir()
                hidden_sibling(self.target, "scratch").mkdir()
            except BaseException:
                self._lock.release()
                raise
        except OSError as error:
            raise OptionError(f"cannot write to {self.target}: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._finished:
            return  # another writer may have begun
        for column in self._columns.values():
            column.discard()
        self._remove_temporary()
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

    def read(self, name: str, start: int, stop: int) -> Array:
        return self._columns[name].read(start, stop)

    def mark(self) -> Any:
        return {name: (column.shape[0], column.crc32) for name, column in self._columns.items()}

    def rollback(self, mark: Any) -> None:
        for name, column in self._columns.items():
            column.rollback(*mark.get(name, (0, 0)))

    def arrays(self) -> dict[str, Array]:
        for column in self._columns.values():
            column.flush()
        return {name: column.open_mapped() for name, column in self._columns.items()}

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
        meta = make_metadata(described, SAVED_FORMAT)
        with (self._dir / METADATA_FILE).open("w") as file:
            json.dump(meta, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        shutil.rmtree(hidden_sibling(self.target, "scratch"), ignore_errors=True)
        self._publish()
        opened = self._open_target(meta)
        self._finished = True
        self._lock.release()
        return opened

    def _open_target(self, meta: Mapping[str, Any]) -> DynamicGraph:
        """Open the finished graph. The builder made its indices, so they are not checked."""
        return assemble_graph(self.target, meta, _map_arrays(self.target, meta)[0])

    def _publish(self) -> None:
        sync_folder(self._dir)
        if self.target.exists():
            check_target(self.target, self._overwrite)
            self.target.rename(self._aside)
        try:
            self._dir.rename(self.target)
        except OSError:
            if self._aside.exists():
                self._aside.rename(self.target)
            raise
        sync_folder(self.target.parent)
        _remove_graph(self._aside)

    def _remove_temporary(self) -> None:
        for folder in (self._dir, hidden_sibling(self.target, "scratch")):
            shutil.rmtree(folder, ignore_errors=True)

    def _recover(self) -> None:
        """Recover from a killed writer of this target: restore a graph that it had moved aside."""
        self._remove_temporary()
        if (self._aside / METADATA_FILE).is_file() and not self.target.exists():
            self._aside.rename(self.target)
        _remove_graph(self._aside)


def save(graph: DynamicGraph, path: str | PathLike[str], *, overwrite: bool = False) -> DynamicGraph:
    """Write a graph or view snapshot by snapshot, and open the result."""
    with DiskSink(path, overwrite=overwrite) as sink:
        builder = GraphBuilder(sink, num_nodes=graph.num_nodes, directed=graph.directed, weighted=graph.weighted)
        first: dict[int, int] = {}
        for snapshot, structure in zip(graph, graph.structures.tolist(), strict=True):
            x, y = _cell_rows(graph.features, snapshot), _cell_rows(graph.labels, snapshot)
            of = first.setdefault(structure, snapshot.t)
            if of < snapshot.t:
                builder.repeat(of, time=snapshot.time, x=x, y=y)
            else:
                nodes = None if snapshot.has_all_nodes else snapshot.nodes
                builder.add(Edges(*snapshot.edges()), nodes=nodes, time=snapshot.time, x=x, y=y)
        return builder.finish(
            features=_drop_cell_rows(graph.features),
            labels=_drop_cell_rows(graph.labels),
            names=graph.names,
            info=graph.info,
        )


def _cell_rows(provider: FeatureProvider | None, snapshot: Snapshot) -> Array | None:
    """Return a snapshot's rows of values stored per cell, below any derived providers."""
    bottom = find_stored(provider)
    return bottom.rows(snapshot) if isinstance(bottom, PerCell) else None


def _drop_cell_rows(provider: FeatureProvider | None) -> FeatureProvider | None:
    """Drop rows per cell from a provider: ``GraphBuilder.finish`` expects them to have come with the snapshots."""
    bottom = find_stored(provider)
    if provider is None or not isinstance(bottom, PerCell):
        return provider
    return from_recipe(provider.recipe(), bottom.values[:0])


def assemble_graph(folder: Path, meta: Mapping[str, Any], arrays: Mapping[str, Array]) -> DynamicGraph:
    """Make the graph from its metadata and arrays."""
    storage = ArrayStorage(
        num_nodes=meta["num_nodes"],
        directed=meta["directed"],
        times=tuple(meta["times"]),
        **{name: arrays.get(name) for name in ARRAYS},  # type: ignore[arg-type]
    )
    graph = DynamicGraph(storage, names=NodeNames.from_arrays(arrays), info=meta["info"])
    with input_errors_as_format_errors(folder):
        graph = graph.with_features(from_recipe(meta["features"], arrays.get("x")))
        return graph.with_labels(from_recipe(meta["labels"], arrays.get("y")))


@contextlib.contextmanager
def input_errors_as_format_errors(folder: Path) -> Iterator[None]:
    """Turn errors about user input into errors about the file it comes from."""
    try:
        yield
    except InputError as error:
        raise FormatError(f"{folder} is no valid graph: {error}") from error


def open_arrays(
    folder: Path, meta: Mapping[str, Any], *, verify: bool = False, on_progress: OnProgress | None = None
) -> dict[str, Array]:
    """Map and check the arrays of a saved graph; arguments as in ``open_graph``."""
    arrays, files = _map_arrays(folder, meta)
    known, digest = verification_cache(), graph_digest(meta, files)
    if not verify and digest in known:
        return arrays
    stable = mtimes_are_stable(files.values())
    check_contents(
        folder, meta, arrays, _progress_in_mebibytes(on_progress, sum(array.nbytes for array in arrays.values()))
    )
    if stable:
        known.add(digest)
    return arrays


def _map_arrays(folder: Path, meta: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, os.stat_result]]:
    """Map the arrays without checking them; return them with the identity of their files."""
    opened = {name: _open_array(folder, name, entry) for name, entry in meta["arrays"].items()}
    return {name: array for name, (array, _) in opened.items()}, {name: file for name, (_, file) in opened.items()}


def _progress_in_mebibytes(on_progress: OnProgress | None, total: int) -> OnBytes:
    """Convert progress in bytes, from any thread, to progress in MiB; None for a small graph."""
    if on_progress is None or total < _PROGRESS_FROM_BYTES:
        return lambda done: None
    lock, so_far = Lock(), 0

    def on_bytes(done: int) -> None:
        nonlocal so_far
        with lock:
            so_far += done
            on_progress(so_far >> 20, total >> 20)

    return on_bytes


def _open_array(folder: Path, name: str, entry: dict[str, Any]) -> tuple[Array, os.stat_result]:
    """Map an array and stat the mapped file itself, even if another file replaces it meanwhile."""
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
                raise FormatError(f"{path} is damaged: its header does not match {METADATA_FILE}")
            return map_npy(file, dtype, shape), status
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror or error}") from error


def check_target(target: Path, overwrite: bool) -> None:
    """Raise OptionError if a graph must not be written to ``target``."""
    if not target.exists():
        return
    if not (target / METADATA_FILE).is_file():
        raise OptionError(f"{target} exists and is not a graph: it is left alone. Choose another place.")
    if not overwrite:
        raise OptionError(
            f"{target} already holds a graph: choose another place, or have it replaced (overwrite=True, --overwrite)"
        )


def _remove_graph(folder: Path) -> None:
    """Remove a graph, metadata first: an interrupted removal leaves no graph."""
    with contextlib.suppress(OSError):
        (folder / METADATA_FILE).unlink()
    shutil.rmtree(folder, ignore_errors=True)
