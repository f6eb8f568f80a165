"""Graphs on disk: one directory of plain .npy arrays and a graph.json, checksummed, written atomically.

The arrays are memory-mapped on open. A graph is written into a hidden directory beside its target and renamed
when every byte has reached the disk: a killed write leaves nothing that opens.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np

from strobe.atomic import disk_is_full, sync_folder
from strobe.errors import FormatError, OptionError, StrobeError
from strobe.graph.arrays import Array
from strobe.graph.build import Edges, GraphBuilder
from strobe.graph.column import CHUNK_BYTES, Column, map_npy, npy_header
from strobe.graph.description import META, SAVED, beside, is_growing, read_description, sealed
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Carrier, PerCell, from_recipe, given
from strobe.graph.lock import WriteLock
from strobe.graph.names import NodeNames
from strobe.graph.snapshot import Snapshot
from strobe.graph.storage import ARRAYS, Storage

VERIFY_UP_TO = 64 << 20
"""Bytes up to which opening a graph also reads and checks every array."""

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
        opened = open_graph(self.target)
        self._finished = True
        self._lock.release()
        return opened

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


def open_graph(path: str | PathLike[str], *, verify: bool | None = None) -> DynamicGraph:
    """Opens a saved graph: arrays are memory-mapped, so size costs neither time nor memory.

    A graph that is replaced meanwhile is opened whole, before or after; never a mixture of both.

    The description, the sizes and the headers of all arrays are always checked; their contents too when
    they are at most 64 MiB together, or with ``verify=True``. Of a graph that grows, the snapshots that are there.
    """
    folder = Path(path)
    graph = _open_whole(folder, verify)
    object.__setattr__(graph, "path", folder.resolve())
    return graph


def _open_whole(folder: Path, verify: bool | None) -> DynamicGraph:
    if is_growing(folder):
        from strobe.graph.growing import Growing

        return Growing(folder).open(verify=verify)
    for _ in range(_ATTEMPTS):
        before = _identity(folder)
        try:
            graph = _open(folder, verify)
        except (FormatError, FileNotFoundError):
            if _identity(folder) == before:
                raise
        else:
            if _identity(folder) == before:
                return graph
    raise FormatError(f"{folder} is replaced again and again while it is being opened")


def _open(folder: Path, verify: bool | None) -> DynamicGraph:
    meta = read_description(folder)
    arrays = open_arrays(folder, meta, verify)
    storage = Storage(
        num_nodes=meta["num_nodes"],
        directed=meta["directed"],
        times=tuple(meta["times"]),
        **{name: arrays.get(name) for name in ARRAYS},  # type: ignore[arg-type]
    )
    return DynamicGraph(
        storage,
        features=from_recipe(meta["features"], arrays.get("x")),
        labels=from_recipe(meta["labels"], arrays.get("y")),
        names=NodeNames.from_arrays(arrays),
        info=meta["info"],
    )


def open_arrays(folder: Path, meta: Mapping[str, Any], verify: bool | None = None) -> dict[str, Array]:
    """The arrays of a saved graph, mapped; ``verify`` as in ``open_graph``."""
    arrays = {name: _open_array(folder, name, entry) for name, entry in meta["arrays"].items()}
    if verify or (verify is None and sum(array.nbytes for array in arrays.values()) <= VERIFY_UP_TO):
        for name, done in _check(folder, meta):
            del name, done
    return arrays


def _identity(folder: Path) -> tuple[int, int] | None:
    """What changes when another graph takes the place of this one; None where there is nothing."""
    try:
        status = folder.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def check_arrays(folder: Path) -> Iterator[tuple[str, int]]:
    """Reads every array against its checksum; yields (name, bytes read) as it goes."""
    if not is_growing(folder):
        yield from _check(folder, read_description(folder))
        return
    from strobe.graph.growing import Growing

    for part in Growing(folder).parts:
        for name, done in _check(part.folder, part.meta):
            yield f"{part.folder.name}/{name}", done


def _check(folder: Path, meta: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name, entry in meta["arrays"].items():
        crc = 0
        with (folder / f"{name}.npy").open("rb") as file:
            file.seek(len(npy_header(np.dtype(entry["dtype"]), tuple(entry["shape"]))))
            while chunk := file.read(CHUNK_BYTES):
                crc = zlib.crc32(chunk, crc)
                yield name, len(chunk)
        if f"{crc:08x}" != entry["crc32"]:
            raise FormatError(
                f"{folder / name}.npy is damaged: its contents do not match the checksum in {META}. "
                "Restore the graph from a copy, or build it again."
            )


def _open_array(folder: Path, name: str, entry: dict[str, Any]) -> Array:
    path = folder / f"{name}.npy"
    dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
    header = npy_header(dtype, shape)
    expected = len(header) + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not path.is_file():
        raise FormatError(f"{folder} is incomplete: {name}.npy is missing")
    if path.stat().st_size != expected:
        raise FormatError(f"{path} is damaged: {path.stat().st_size:,} bytes where {expected:,} belong")
    with path.open("rb") as file:
        if file.read(len(header)) != header:
            raise FormatError(f"{path} is damaged: its header does not match {META}")
    return map_npy(path, dtype, shape)


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
