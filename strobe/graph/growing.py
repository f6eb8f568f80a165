"""A graph that grows on disk, snapshot by snapshot, while others read it.

A directory of parts, each a saved graph of one snapshot, and a graph.json that says what they have in common. A part
is there whole or not at all: a writer that is killed leaves the snapshots before the one it was at.
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
from strobe.graph.arrays import Array, as_features, as_labels
from strobe.graph.build import Edges, GraphBuilder
from strobe.graph.description import GROWING, META, beside, invalid, read_description, sealed
from strobe.graph.disk import DiskSink, open_arrays, refuse_target, refused_as_format
from strobe.graph.dynamic import DynamicGraph
from strobe.graph.features import Carrier, PerCell, from_recipe, given
from strobe.graph.fields import NEW, FieldError
from strobe.graph.id_space import refuse_vast
from strobe.graph.lock import WriteLock
from strobe.graph.names import NodeNames
from strobe.graph.parts import NamesInParts, Part, Parts, RowType, carried, row_type, wider
from strobe.graph.progress import OnProgress
from strobe.graph.storage import Time
from strobe.io.atomic import sync_folder, write_whole

_PARTS_OPEN = 8192
"""Parts whose arrays stay mapped: a process may have some 65,000 mappings, and a part needs up to seven."""


class Growing:
    """A graph on disk to which snapshots are appended; ``open`` gives those that are there.

    Appending costs what the snapshot costs, however many there are, and takes effect at once or not at all. One
    process appends; any number of others may open the graph meanwhile and see the snapshots that were whole by then.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path).resolve()
        self._described = read_description(self.path, GROWING)
        self._lock: WriteLock | None = None
        self.parts: list[Part] = []
        self._naming: str | None = None
        self._row_types = {name: self._promised(name) for name in ("x", "y")}
        self._arrays = lru_cache(_PARTS_OPEN)(self._open_part)
        self._refuse_gaps()
        self._find_new()

    @classmethod
    def create(
        cls,
        path: str | PathLike[str],
        *,
        directed: bool = True,
        weighted: bool = False,
        features: Carrier | None = None,
        labels: Carrier | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> Self:
        """A graph without snapshots, at a place where nothing is, for this process to append to.

        ``features`` and ``labels`` are derived, or rest on a ``PerCell`` without rows, which stands for those that come
        with the snapshots. One row per node for all time is refused: who will come is not known.
        """
        for what, carrier in (("features", features), ("labels", labels)):
            bottom = given(carrier)
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
        lock = _locked(target)
        try:
            refuse_target(target, overwrite=False)
            _place(target, sealed(described, GROWING))
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

    def claim(self) -> None:
        """Makes this process the one that appends, until ``close``; another one is refused."""
        if self._lock is None:
            self._lock = _locked(self.path)
            for left in self.path.glob(".*.lock"):  # a killed process locked a snapshot; no other one writes now
                left.unlink(missing_ok=True)
            self._find_new()

    def close(self) -> None:
        """Lets others append."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __len__(self) -> int:
        """How many snapshots there are by now."""
        self._find_new()
        return len(self.parts)

    @property
    def num_nodes(self) -> int:
        """How many nodes are known by now."""
        return self.parts[-1].num_nodes if self.parts else 0

    @property
    def info(self) -> Mapping[str, Any]:
        """What the graph was made with and what its last snapshot added to it."""
        return {**self._described["info"], **(self.parts[-1].info if self.parts else {})}

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
        """Adds the next snapshot, as ``GraphBuilder.add`` takes it.

        Nodes are numbered in the order in which they come: ``names`` are those of nodes that come with this snapshot,
        and where nodes have no names ``num_nodes`` is how many there are from now on. ``info`` is what the graph shall
        remember until the next snapshot says otherwise.
        """
        self.claim()
        t = len(self)
        rows = {"x": None if x is None else as_features(x, f"snapshot {t}: features")}
        rows["y"] = None if y is None else as_labels(y, f"snapshot {t}: labels")
        for name, values in rows.items():
            self._refuse_other_rows(t, name, values)
        named = self._new_names(names, num_nodes, t)
        total = self.num_nodes + len(named) if num_nodes is None else num_nodes
        with DiskSink(self.path / _folder(t)) as sink:
            builder = GraphBuilder(
                sink,
                num_nodes=total,
                directed=self._described["directed"],
                weighted=self._described["weighted"],
                first=t,
            )
            builder.add(edges, nodes=nodes, time=time, x=rows["x"], y=rows["y"])
            for name, array in named.arrays().items() if len(named) else ():
                if name != "name_order":
                    sink.append(NEW + name, array)
            builder.finish(
                features=self._carrier("features", rows["x"]),
                labels=self._carrier("labels", rows["y"]),
                info={"edges": builder.num_edges, "info": self._remembered(info)},
            )
        self._find_new()

    def open(
        self, snapshots: int | None = None, *, verify: bool = False, on_progress: OnProgress | None = None
    ) -> DynamicGraph:
        """The first so many snapshots, by default all, over the nodes that are known after them.

        Parts are mapped, and checked as ``open_graph`` does, when they are first read. With ``verify`` all are checked
        now; ``on_progress`` is called with (parts checked, parts in all).
        """
        count = len(self) if snapshots is None else snapshots
        if not 0 <= count <= len(self):
            raise OptionError(f"{self.path} has {len(self)} snapshots, there are no {count}")
        if verify:
            for t in range(count):
                self._checked_part(t, verify=True)
                if on_progress is not None:
                    on_progress(t + 1, count)
        with refused_as_format(self.path):
            return self._opened(self.parts[:count])

    def _opened(self, parts: list[Part]) -> DynamicGraph:
        described = self._described
        if parts:
            refuse_vast(self.path, parts[-1].num_nodes, sum(part.num_cells for part in parts))
        storage = Parts.of(parts, self._arrays, directed=described["directed"], weighted=described["weighted"])
        return DynamicGraph(
            storage,
            features=self._carried("x", described["features"], parts),
            labels=self._carried("y", described["labels"], parts),
            names=NamesInParts(parts, self._arrays) if any(part.naming for part in parts) else None,
            info={**described["info"], **(parts[-1].info if parts else {})},
        )

    def _carried(self, name: str, recipe: dict[str, Any] | None, parts: list[Part]) -> Carrier | None:
        return carried(name, recipe, row_type(parts, name, self._promised(name)), parts, self._arrays)

    def _promised(self, name: str) -> RowType | None:
        """What is known of rows before there are any."""
        shape = self._described["shapes"][name]
        return None if shape is None else RowType(tuple(shape), None)

    def _open_part(self, t: int) -> Mapping[str, Array]:
        return self._checked_part(t)

    def _checked_part(self, t: int, *, verify: bool = False) -> Mapping[str, Array]:
        part = self.parts[t]
        arrays = open_arrays(part.folder, part.meta, verify=verify)
        if arrays["edge_count"].tolist() != [part.num_edges]:
            raise FormatError(f"{part.folder} is no valid graph: its description counts {part.num_edges:,} edges")
        return arrays

    def _find_new(self) -> None:
        while (folder := self.path / _folder(len(self.parts))).exists():
            part = Part.read(folder)
            with invalid(folder):
                self._refuse_unlike(part)
            self.parts.append(part)
            self._naming = self._naming or part.naming
            self._row_types = {name: wider(before, part, name) for name, before in self._row_types.items()}

    def _refuse_unlike(self, part: Part) -> None:
        """Raises FieldError where a part cannot be the next snapshot after those that are there."""
        described, num_new = self._described, part.num_nodes - self.num_nodes
        if part.meta["directed"] != described["directed"] or ("weight" in part.meta["arrays"]) != described["weighted"]:
            raise FieldError("it is directed or weighted otherwise than the graph it is a part of")
        named = num_new if part.naming or self._naming else 0
        if num_new < 0 or part.num_names != named:
            raise FieldError(f"it brings {part.num_names:,} names and has {num_new:,} nodes more than the part before")
        if part.naming and (self._naming not in (part.naming, None) or (self._naming is None and self.num_nodes)):
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

    def _refuse_gaps(self) -> None:
        found = sorted(path.name for path in self.path.iterdir() if path.name.isdigit())
        for t, name in enumerate(found):
            if name != _folder(t):
                raise FormatError(f"{self.path} is incomplete: snapshot {t} is missing, but there is {name}")

    def _refuse_other_rows(self, t: int, name: str, rows: Array | None) -> None:
        """Rows must be like those of the snapshots before, as ``GraphBuilder`` wants them."""
        what = f"snapshot {t}: {'features' if name == 'x' else 'labels'}"
        before = self._row_types[name]
        if (self.parts or before is not None) and (before is None) != (rows is None):
            raise InputError(f"{what} must be given for every snapshot or for none")
        if before is None or rows is None:
            return
        if rows.shape[1:] != before.shape:
            raise InputError(f"{what} have shape {rows.shape[1:]} per node, those before it {before.shape}")
        if before.dtype is not None and len(rows) and rows.dtype.kind != before.dtype.kind:
            raise InputError(f"{what} are {rows.dtype}, those before it {before.dtype}: give all of one kind")

    def _new_names(self, names: Iterable[int] | Iterable[str] | None, num_nodes: int | None, t: int) -> NodeNames:
        new = NodeNames.of(() if names is None else names, in_any_order=True)
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

    def _remembered(self, info: Mapping[str, Any] | None) -> dict[str, Any]:
        return dict(info if info is not None else self.parts[-1].info if self.parts else {})

    def _carrier(self, what: str, rows: Array | None) -> Carrier | None:
        recipe = self._described[what]
        return None if recipe is None else from_recipe(recipe, None if rows is None else rows[:0])


def _row_shape(carrier: Carrier | None) -> list[int] | None:
    """The shape of a row that comes with the snapshots; None where none is announced."""
    bottom = given(carrier)
    return None if bottom is None else list(bottom.shape)


def _folder(t: int) -> str:
    return f"{t:08}"


def _locked(target: Path) -> WriteLock:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        return WriteLock(target)
    except OSError as error:
        raise OptionError(f"cannot write to {target}: {error}") from error


def _place(target: Path, meta: dict[str, Any]) -> None:
    """Puts a directory with this description where the target shall be, at once."""
    making = beside(target, "making")
    shutil.rmtree(making, ignore_errors=True)  # of a process that was killed
    making.mkdir()
    write_whole(making / META, lambda file: file.write(json.dumps(meta, indent=1).encode()))
    making.rename(target)
    sync_folder(target.parent)
