"""Growing graphs: snapshots are appended on disk while other processes read them.

A directory of parts, each a saved graph of one snapshot, and a graph.json with what parts have in common. A part
appears atomically: a killed writer leaves all snapshots before the one it was writing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy.typing as npt

from strobe.errors import FormatError, InputError, OptionError
from strobe.graph.arrays import Array, RowType
from strobe.graph.build import Edges, GraphBuilder
from strobe.graph.disk.directory import DiskSink, check_target, input_errors_as_format_errors, open_arrays
from strobe.graph.disk.metadata import (
    GROWING_FORMAT,
    METADATA_FILE,
    NEW_PREFIX,
    FieldError,
    check_id_space,
    field_errors_as_format_errors,
    hidden_sibling,
    make_metadata,
    read_metadata,
)
from strobe.graph.disk.parts import Part, PartNames, PartStorage, make_provider, widen_row_type
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import FeatureProvider, PerCell, find_stored, from_recipe
from strobe.graph.names import NodeNames
from strobe.graph.progress import OnProgress
from strobe.graph.storage import Time
from strobe.io.atomic import sync_folder, write_atomic
from strobe.io.lock import WriteLock

_PARTS_OPEN = 8192
"""Parts whose arrays stay mapped: a process may have about 65,000 mappings, and a part needs up to seven."""


class GrowingGraph:
    """Graph on disk to which snapshots are appended; ``open`` returns the current snapshots.

    Appending costs the same however many snapshots there are, and is atomic. One process appends; any number of others
    may open the graph meanwhile and see all complete snapshots.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path).resolve()
        self._described = read_metadata(self.path, GROWING_FORMAT)
        self._lock: WriteLock | None = None
        self.parts: list[Part] = []
        self._naming: str | None = None
        self._row_types = {name: self._declared_row_type(name) for name in ("x", "y")}
        self._arrays = lru_cache(_PARTS_OPEN)(self._open_part)
        self._check_no_gaps()
        self._load_new_parts()

    @classmethod
    def create(
        cls,
        path: str | PathLike[str],
        *,
        directed: bool = True,
        weighted: bool = False,
        features: FeatureProvider | None = None,
        labels: FeatureProvider | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> Self:
        """Create a graph without snapshots and make this process its writer.

        ``features`` and ``labels`` are derived, or rest on a ``PerCell`` without rows, which stands for rows that come
        with the snapshots. Values per node are refused, because future nodes are unknown.
        """
        for what, carrier in (("features", features), ("labels", labels)):
            bottom = find_stored(carrier)
            if bottom is not None and not (isinstance(bottom, PerCell) and bottom.num_rows == 0):
                raise OptionError(f"{what} of a graph that grows come with its snapshots, or are derived from them")
        target = Path(path).resolve()
        described = {
            "directed": bool(directed),
            "weighted": bool(weighted),
            "features": None if features is None else features.recipe(),
            "labels": None if labels is None else labels.recipe(),
            "shapes": {"x": _row_shape(features), "y": _row_shape(labels)},
            "info": dict(info or {}),
        }
        lock = _acquire_lock(target)
        try:
            check_target(target, overwrite=False)
            _create_directory(target, make_metadata(described, GROWING_FORMAT))
            made = cls(target)
        except BaseException:
            lock.release()
            raise
        made._lock = lock
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def acquire(self) -> None:
        """Make this process the writer until ``close``; another writer is refused."""
        if self._lock is None:
            self._lock = _acquire_lock(self.path)
            for left in self.path.glob(".*.lock"):  # left by a killed process; no other process writes now
                left.unlink(missing_ok=True)
            self._load_new_parts()

    def close(self) -> None:
        """Release the graph to other writers."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __len__(self) -> int:
        """Current number of snapshots."""
        self._load_new_parts()
        return len(self.parts)

    @property
    def num_nodes(self) -> int:
        """Current number of nodes."""
        return self.parts[-1].num_nodes if self.parts else 0

    @property
    def info(self) -> Mapping[str, Any]:
        """Metadata of the graph, updated by that of its last snapshot."""
        return {**self._described["info"], **self._last_info}

    def append(
        self,
        edges: Edges | Iterable[Edges],
        *,
        nodes: npt.ArrayLike | None = None,
        time: Time | None = None,
        x: npt.ArrayLike | None = None,
        y: npt.ArrayLike | None = None,
        names: Iterable[int] | Iterable[str] | None = None,
        num_nodes: int | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        """Append the next snapshot; arguments as in ``GraphBuilder.add``.

        Nodes are numbered in order of arrival: ``names`` are those of nodes new in this snapshot; without names,
        ``num_nodes`` is the number of nodes from now on. ``info`` is metadata that holds until the next snapshot
        replaces it.
        """
        self.acquire()
        t = len(self)
        named = self._new_names(names, num_nodes, t)
        total = self.num_nodes + len(named) if num_nodes is None else num_nodes
        with DiskSink(self.path / _part_name(t)) as sink:
            builder = GraphBuilder(
                sink,
                num_nodes=total,
                directed=self._described["directed"],
                weighted=self._described["weighted"],
                first_index=t,
                row_types=self._row_types,
            )
            builder.add(edges, nodes=nodes, time=time, x=x, y=y)
            for name, array in named.arrays().items() if len(named) else ():
                if name != "name_order":
                    sink.append(NEW_PREFIX + name, array)
            builder.finish(
                features=self._empty_provider("features", self._row_types["x"]),
                labels=self._empty_provider("labels", self._row_types["y"]),
                info={"edges": builder.num_edges, "info": dict(self._last_info if info is None else info)},
            )
        self._load_new_parts()

    def open(
        self, snapshots: int | None = None, *, verify: bool = False, on_progress: OnProgress | None = None
    ) -> DynamicGraph:
        """Open the first ``snapshots`` snapshots (default: all) over the nodes known after them.

        Parts are mapped, and checked as by ``open_graph``, when they are first read. ``verify`` checks all of them now;
        ``on_progress`` is called with (parts checked, total parts).
        """
        count = len(self) if snapshots is None else snapshots
        if not 0 <= count <= len(self):
            raise OptionError(f"{self.path} has {len(self)} snapshots, there are no {count}")
        if verify:
            for t in range(count):
                self._open_part(t, verify=True)
                if on_progress is not None:
                    on_progress(t + 1, count)
        with input_errors_as_format_errors(self.path):
            return self._assemble(self.parts[:count])

    def _assemble(self, parts: list[Part]) -> DynamicGraph:
        described = self._described
        if parts:
            check_id_space(self.path, parts[-1].num_nodes, sum(part.num_cells for part in parts))
        storage = PartStorage.from_parts(
            parts, self._arrays, directed=described["directed"], weighted=described["weighted"]
        )
        features, labels = (
            make_provider(name, described[what], self._declared_row_type(name), parts, self._arrays)
            for name, what in (("x", "features"), ("y", "labels"))
        )
        return DynamicGraph(
            storage,
            features=features,
            labels=labels,
            names=PartNames(parts, self._arrays) if any(part.name_array for part in parts) else None,
            info={**described["info"], **(parts[-1].info if parts else {})},
        )

    def _declared_row_type(self, name: str) -> RowType | None:
        """Return the row type before there are any rows."""
        shape = self._described["shapes"][name]
        return None if shape is None else RowType(tuple(shape), None)

    def _open_part(self, t: int, *, verify: bool = False) -> Mapping[str, Array]:
        part = self.parts[t]
        arrays = open_arrays(part.folder, part.meta, verify=verify)
        if arrays["edge_count"].tolist() != [part.num_edges]:
            raise FormatError(f"{part.folder} is no valid graph: its description counts {part.num_edges:,} edges")
        return arrays

    def _load_new_parts(self) -> None:
        while (folder := self.path / _part_name(len(self.parts))).exists():
            part = Part.read(folder)
            with field_errors_as_format_errors(folder):
                self._check_next_part(part)
            self.parts.append(part)
            self._naming = self._naming or part.name_array
            self._row_types = {name: widen_row_type(before, part, name) for name, before in self._row_types.items()}

    def _check_next_part(self, part: Part) -> None:
        """Raise FieldError if a part cannot be the next snapshot."""
        described, num_new = self._described, part.num_nodes - self.num_nodes
        if part.meta["directed"] != described["directed"] or ("weight" in part.meta["arrays"]) != described["weighted"]:
            raise FieldError("it is directed or weighted otherwise than the graph it is a part of")
        named = num_new if part.name_array or self._naming else 0
        if num_new < 0 or part.num_names != named:
            raise FieldError(f"it brings {part.num_names:,} names and has {num_new:,} nodes more than the part before")
        if part.name_array and (
            self._naming not in (part.name_array, None) or (self._naming is None and self.num_nodes)
        ):
            raise FieldError("the nodes that it brings are named otherwise than those before")
        for (name, before), what in zip(self._row_types.items(), ("features", "labels"), strict=True):
            entry = part.meta["arrays"].get(name)
            if part.meta[what] != (described[what] or (entry and {"kind": "per_cell"})):
                raise FieldError(f"its {what} are made otherwise than those of the graph it is a part of")
            if entry is not None and entry["shape"][0] != part.num_cells:
                raise FieldError(f"array {name} has {entry['shape'][0]:,} rows for {part.num_cells:,} cells")
            if (self.parts or before is not None) and (before is None) != (entry is None):
                raise FieldError(f"array {name} must be in all parts or in none")
            if before is not None and entry is not None and tuple(entry["shape"][1:]) != before.shape:
                raise FieldError(f"rows of {name} have shape {entry['shape'][1:]}, those before it {before.shape}")

    def _check_no_gaps(self) -> None:
        numbers = sorted(path.name for path in self.path.iterdir() if path.name.isdigit())
        for t, name in enumerate(numbers):
            if name != _part_name(t):
                raise FormatError(f"{self.path} is incomplete: snapshot {t} is missing, but there is {name}")

    def _new_names(self, names: Iterable[int] | Iterable[str] | None, num_nodes: int | None, t: int) -> NodeNames:
        new = NodeNames.from_names(() if names is None else names, in_any_order=True)
        known, naming = self.num_nodes, self._naming
        if num_nodes is not None and num_nodes < known:
            raise InputError(f"snapshot {t}: {num_nodes:,} nodes after {known:,}: known ones do not go away")
        num_new = len(new) if num_nodes is None else num_nodes - known
        if num_new and len(new) != num_new and (naming or len(new)):
            raise InputError(f"snapshot {t}: {len(new):,} names for {num_new:,} new nodes")
        if len(new) and known and naming is None:
            raise InputError(f"snapshot {t}: the nodes before it have no names, so new ones cannot have any")
        if len(new) and naming is not None and naming not in new.arrays():
            raise InputError(f"snapshot {t}: names must be all integers or all strings, in all snapshots")
        return new

    @property
    def _last_info(self) -> Mapping[str, Any]:
        return self.parts[-1].info if self.parts else {}

    def _empty_provider(self, what: str, rows: RowType | None) -> FeatureProvider | None:
        return from_recipe(self._described[what], None if rows is None else rows.empty())


def _row_shape(provider: FeatureProvider | None) -> list[int] | None:
    """Return the shape of rows that come with the snapshots; None if there are none."""
    bottom = find_stored(provider)
    return None if bottom is None else list(bottom.shape)


def _part_name(t: int) -> str:
    return f"{t:08}"


def _acquire_lock(target: Path) -> WriteLock:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        return WriteLock(target)
    except OSError as error:
        raise OptionError(f"cannot write to {target}: {error}") from error


def _create_directory(target: Path, meta: dict[str, Any]) -> None:
    """Create the target directory with this metadata atomically."""
    making = hidden_sibling(target, "making")
    shutil.rmtree(making, ignore_errors=True)  # left by a killed process
    making.mkdir()
    write_atomic(making / METADATA_FILE, lambda file: file.write(json.dumps(meta, indent=1).encode()))
    making.rename(target)
    sync_folder(target.parent)
