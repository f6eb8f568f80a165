"""Graphs on disk: one directory of plain .npy arrays and a graph.json, checksummed, written atomically.

The arrays are memory-mapped on open. A graph is written into a hidden directory beside its target and renamed
when every byte has reached the disk: a killed write leaves nothing that opens.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shutil
import zlib
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from strobe.errors import FormatError, InputError, OptionError, StrobeError
from strobe.graph.build import Edges, GraphBuilder
from strobe.graph.dynamic import ARRAYS, DynamicGraph, Storage
from strobe.graph.features import Array, Static, from_recipe, given
from strobe.graph.names import NodeNames

FORMAT, VERSION = "strobe-graph", 1
VERIFY_UP_TO = 64 << 20
"""Bytes up to which opening a graph also reads and checks every array."""

_CHUNK = 16 << 20
_META = "graph.json"


class Column:
    """An array that grows by rows in an .npy file, with the checksum of its data."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.crc32 = 0
        self.dtype: np.dtype[Any] | None = None
        self.shape: tuple[int, ...] = (0,)
        self._file: BinaryIO | None = None

    def append(self, rows: Array) -> None:
        rows = np.ascontiguousarray(rows)
        if self.dtype is None:
            self.dtype, self.shape = rows.dtype, (0, *rows.shape[1:])
            self._file = self.path.open("wb")
            self._file.write(_header(self.dtype, self.shape))
        if rows.shape[1:] != self.shape[1:]:
            raise InputError(f"{self.path.stem}: rows of shape {rows.shape[1:]} after rows of shape {self.shape[1:]}")
        wider = np.promote_types(self.dtype, rows.dtype)
        if wider != self.dtype and rows.size:
            self._widen(wider)
        assert self._file is not None
        for start in range(0, len(rows), step := max(1, _CHUNK // max(1, rows[:1].nbytes))):
            data = np.ascontiguousarray(rows[start : start + step], self.dtype).data.cast("B")
            self._file.write(data)
            self.crc32 = zlib.crc32(data, self.crc32)
        self.shape = (self.shape[0] + len(rows), *self.shape[1:])

    def flush(self) -> None:
        """Makes what was appended readable through ``map``."""
        assert self._file is not None
        assert self.dtype is not None
        at = self._file.tell()
        self._file.seek(0)
        self._file.write(_header(self.dtype, self.shape))
        self._file.seek(at)
        self._file.flush()

    def close(self) -> None:
        if self._file is not None and not self._file.closed:
            self.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def abandon(self) -> None:
        """Closes the file without caring for what is in it: it is about to be removed."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # on a full disk buffered bytes cannot be written, and need not be
                self._file.close()

    def describe(self) -> dict[str, Any]:
        assert self.dtype is not None
        return {"dtype": self.dtype.str, "shape": list(self.shape), "crc32": f"{self.crc32:08x}"}

    def _widen(self, dtype: np.dtype[Any]) -> None:
        """Rewrites the file with a wider type, which happens when a snapshot outgrows int32."""
        self.close()
        narrow = _map(self.path)
        self.path.rename(old := self.path.with_suffix(".old"))
        self.crc32, self.dtype, self.shape = 0, None, (0,)
        self.append(np.empty((0, *narrow.shape[1:]), dtype))
        for start in range(0, len(narrow), _CHUNK):
            self.append(narrow[start : start + _CHUNK].astype(dtype))
        old.unlink()


class DiskSink:
    """Writes a graph's arrays into a hidden directory that becomes the target when it is finished.

    Use it as a context manager: leaving it without ``finish`` removes what was written.
    """

    def __init__(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        self.target = Path(path)
        self._overwrite = overwrite
        self.target.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(self.target)
        _refuse_target(self.target, overwrite)
        self._dir = self.target.parent / f".{self.target.name}.writing-{os.getpid()}"
        self._dir.mkdir()
        self.scratch_dir: Path | None = self._dir
        self._columns: dict[str, Column] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        for column in self._columns.values():
            column.abandon()
        shutil.rmtree(self._dir, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
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
        return {name: _map(column.path) for name, column in self._columns.items()}

    def finish(self, graph: DynamicGraph) -> DynamicGraph:
        for column in self._columns.values():
            column.close()
        meta = {
            "format": FORMAT,
            "version": VERSION,
            "num_nodes": graph.num_nodes,
            "directed": graph.directed,
            "times": list(graph.times),
            "features": None if graph.features is None else graph.features.recipe(),
            "labels": None if graph.labels is None else graph.labels.recipe(),
            "info": dict(graph.info),
            "arrays": {name: column.describe() for name, column in sorted(self._columns.items())},
        }
        meta["crc32"] = _meta_crc(meta)
        with (self._dir / _META).open("w") as file:
            json.dump(meta, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        self._publish()
        return open_graph(self.target)

    def _publish(self) -> None:
        _sync_dir(self._dir)
        old = self.target.parent / f".{self.target.name}.replaced-{os.getpid()}"
        if self.target.exists():
            _refuse_target(self.target, self._overwrite)
            self.target.rename(old)
        self._dir.rename(self.target)
        _sync_dir(self.target.parent)
        shutil.rmtree(old, ignore_errors=True)


def save(graph: DynamicGraph, path: str | PathLike[str], *, overwrite: bool = False) -> DynamicGraph:
    """Writes a graph, or what a view shows of it, snapshot by snapshot, and opens the result."""
    with DiskSink(path, overwrite=overwrite) as sink:
        builder = GraphBuilder(sink, num_nodes=graph.num_nodes, directed=graph.directed, weighted=graph.weighted)
        kept_x, kept_y = (isinstance(given(c), Static) or given(c) is None for c in (graph.features, graph.labels))
        for snapshot in graph:
            builder.add(
                Edges(*snapshot.edges()),
                nodes=None if snapshot.has_all_nodes else snapshot.nodes,
                time=snapshot.time,
                x=None if kept_x else snapshot.x,
                y=None if kept_y else snapshot.y,
            )
        return builder.finish(
            features=graph.features if kept_x else None,
            labels=graph.labels if kept_y else None,
            names=graph.names,
            info=graph.info,
        )


def open_graph(path: str | PathLike[str], *, verify: bool | None = None) -> DynamicGraph:
    """Opens a saved graph: arrays are memory-mapped, so size costs neither time nor memory.

    The description, the sizes and the headers of all arrays are always checked; their contents too when
    they are at most 64 MiB together, or with ``verify=True``.
    """
    folder = Path(path)
    meta = _read_meta(folder)
    arrays = {name: _open_array(folder, name, entry) for name, entry in meta["arrays"].items()}
    if verify or (verify is None and sum(array.nbytes for array in arrays.values()) <= VERIFY_UP_TO):
        for name, done in check_arrays(folder, meta):
            del name, done
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


def check_arrays(folder: Path, meta: dict[str, Any] | None = None) -> Iterator[tuple[str, int]]:
    """Reads every array against its checksum; yields (name, bytes read) as it goes."""
    for name, entry in (_read_meta(folder) if meta is None else meta)["arrays"].items():
        crc = 0
        with (folder / f"{name}.npy").open("rb") as file:
            file.seek(len(_header(np.dtype(entry["dtype"]), tuple(entry["shape"]))))
            while chunk := file.read(_CHUNK):
                crc = zlib.crc32(chunk, crc)
                yield name, len(chunk)
        if f"{crc:08x}" != entry["crc32"]:
            raise FormatError(
                f"{folder / name}.npy is damaged: its contents do not match the checksum in {_META}. "
                "Restore the graph from a copy, or build it again."
            )


def _read_meta(folder: Path) -> dict[str, Any]:
    if not folder.exists():
        aside = sorted(folder.parent.glob(f".{folder.name}.replaced-*"))
        hint = f"; one that was being replaced is at {aside[-1]}" if aside else ""
        raise FormatError(f"there is no graph at {folder}{hint}")
    if not (folder / _META).is_file():
        raise FormatError(
            f"{folder} is not a saved graph: it has no {_META}. "
            "To make a graph from a table use 'strobe ingest', from a known data set 'strobe data get'."
        )
    try:
        meta = json.loads((folder / _META).read_text())
        known = meta["format"] == FORMAT
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{folder / _META} is damaged: {error}") from error
    if not known:
        raise FormatError(f"{folder} holds a {meta['format']!r}, not a {FORMAT!r}")
    if meta.get("version") != VERSION:
        raise FormatError(f"{folder} has format version {meta.get('version')}, this program reads version {VERSION}")
    if meta.get("crc32") != _meta_crc(meta):
        raise FormatError(f"{folder / _META} is damaged or was edited: its checksum does not match")
    return dict(meta)


def _open_array(folder: Path, name: str, entry: dict[str, Any]) -> Array:
    path = folder / f"{name}.npy"
    dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
    header = _header(dtype, shape)
    expected = len(header) + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not path.is_file():
        raise FormatError(f"{folder} is incomplete: {name}.npy is missing")
    if path.stat().st_size != expected:
        raise FormatError(f"{path} is damaged: {path.stat().st_size:,} bytes where {expected:,} belong")
    with path.open("rb") as file:
        if file.read(len(header)) != header:
            raise FormatError(f"{path} is damaged: its header does not match {_META}")
    return _map(path)


def _map(path: Path) -> Array:
    mapped: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return np.asarray(mapped)  # plain ndarray over the same pages: slices of np.memmap are slow to make


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The .npy header; numpy leaves room in it for the first axis to grow, so its length is constant."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    )
    return buffer.getvalue()


def _meta_crc(meta: dict[str, Any]) -> str:
    rest = {key: value for key, value in meta.items() if key != "crc32"}
    return f"{zlib.crc32(json.dumps(rest, sort_keys=True).encode()):08x}"


def _refuse_target(target: Path, overwrite: bool) -> None:
    if not target.exists():
        return
    if not (target / _META).is_file():
        raise OptionError(f"{target} exists and is not a graph: it is left alone. Choose another place.")
    if not overwrite:
        raise OptionError(f"{target} already holds a graph: choose another place, or say overwrite")


def _remove_leftovers(target: Path) -> None:
    """Clears up after writers of this target that were killed: a graph they had moved aside comes back."""
    for left in target.parent.glob(f".{target.name}.*-*"):
        kind, _, pid = left.name.rpartition(".")[2].rpartition("-")
        if kind not in ("writing", "replaced") or not pid.isdigit() or _runs(int(pid)):
            continue
        if kind == "replaced" and not target.exists():
            left.rename(target)
        else:
            shutil.rmtree(left, ignore_errors=True)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sync_dir(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
