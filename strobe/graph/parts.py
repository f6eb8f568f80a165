"""A graph in parts: one saved graph per snapshot, mapped when somebody asks for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from strobe.graph.arrays import Array, read_only
from strobe.graph.description import invalid, read_description
from strobe.graph.features import BySnapshot, Carrier, from_recipe, resting_on
from strobe.graph.fields import NEW, check_part
from strobe.graph.names import NodeNames
from strobe.graph.storage import Rows, Stored, Time
from strobe.ops.csr import FloatArray, IntArray, index_dtype

Arrays = Callable[[int], Mapping[str, Array]]
"""The arrays of part t, by name."""


@dataclass(frozen=True)
class Part:
    """One snapshot of a graph in parts, known by its description."""

    folder: Path
    meta: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Self:
        meta = read_description(folder)
        with invalid(folder):
            check_part(meta)
        return cls(folder, meta)

    @property
    def num_nodes(self) -> int:
        """How many nodes are known when it is over."""
        return int(self.meta["num_nodes"])

    @property
    def time(self) -> Time:
        return self.meta["times"][0]  # type: ignore[no-any-return]

    @property
    def num_edges(self) -> int:
        return int(self.meta["info"]["edges"])

    @property
    def info(self) -> Mapping[str, Any]:
        """What the graph shall remember from here on."""
        return self.meta["info"]["info"]  # type: ignore[no-any-return]

    @property
    def num_cells(self) -> int:
        return int(self.meta["arrays"]["row_ptr"]["shape"][0]) - 1

    @property
    def num_arcs(self) -> int:
        return int(self.meta["arrays"]["col"]["shape"][0])

    @property
    def naming(self) -> str | None:
        """The kind of names it brings: the array they are in. None where it brings none."""
        return next((kind for kind in ("name_int", "name_ptr") if NEW + kind in self.meta["arrays"]), None)

    @property
    def num_names(self) -> int:
        """How many names it brings."""
        arrays, naming = self.meta["arrays"], self.naming
        return 0 if naming is None else int(arrays[NEW + naming]["shape"][0]) - (naming == "name_ptr")

    @property
    def nbytes(self) -> int:
        arrays = self.meta["arrays"].values()
        return sum(math.prod(array["shape"]) * np.dtype(array["dtype"]).itemsize for array in arrays)


class RowType(NamedTuple):
    """What rows of an array in parts have in common; ``dtype`` is None while there is no row."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None

    def empty(self) -> Array:
        return np.empty((0, *self.shape), np.float32 if self.dtype is None else self.dtype)


def wider(before: RowType | None, part: Part, name: str) -> RowType | None:
    """The type that holds the rows of one more part; None where parts have no such array."""
    entry = part.meta["arrays"].get(name)
    if entry is None:
        return before
    # The type of an array without rows says nothing: [] is a float64 array.
    dtypes = [None if before is None else before.dtype, np.dtype(entry["dtype"]) if entry["shape"][0] else None]
    known = [dtype for dtype in dtypes if dtype is not None]
    return RowType(tuple(entry["shape"][1:]), np.result_type(*known) if known else None)


def row_type(parts: Sequence[Part], name: str, before: RowType | None = None) -> RowType | None:
    """The type that holds the rows of all parts, and of what was known before them."""
    return reduce(lambda known, part: wider(known, part, name), parts, before)


@dataclass(frozen=True, eq=False, kw_only=True)
class Parts(Stored):
    """Snapshots that are one part each."""

    arrays: Arrays
    weights: RowType | None
    num_bytes: int
    known: IntArray  # [T], how many nodes are known at t

    @classmethod
    def of(cls, parts: Sequence[Part], arrays: Arrays, *, directed: bool, weighted: bool) -> Self:
        return cls(
            num_nodes=parts[-1].num_nodes if parts else 0,
            directed=directed,
            times=tuple(part.time for part in parts),
            cell_ptr=_offsets(part.num_cells for part in parts),
            arc_ptr=_offsets(part.num_arcs for part in parts),
            edge_count=read_only(np.array([part.num_edges for part in parts], np.int64)),
            arrays=arrays,
            weights=(row_type(parts, "weight") or RowType((), None)) if weighted else None,
            num_bytes=sum(part.nbytes for part in parts),
            known=np.array([part.num_nodes for part in parts], np.int64),
        )

    @property
    def weighted(self) -> bool:
        return self.weights is not None

    @property
    def nbytes(self) -> int:
        return self.num_bytes

    @property
    def mapped(self) -> bool:
        return True

    def nodes(self, t: int) -> IntArray:
        node = self.arrays(t).get("node")
        if node is not None:
            return node
        everyone: IntArray = np.arange(self.known[t], dtype=index_dtype(self.num_nodes))
        return read_only(everyone)

    def rows(self, t: int) -> Rows:
        arrays = self.arrays(t)
        weight: FloatArray | None = None
        if self.weights is not None:
            weight = arrays["weight"].astype(self.weights.dtype or np.float32, copy=False)
        return arrays["row_ptr"], arrays["col"], weight


@dataclass(frozen=True, eq=False)
class RowsInParts(BySnapshot):
    """Values per cell, each snapshot's in its part."""

    arrays: Arrays
    name: str

    @property
    def mapped(self) -> bool:
        return True

    def at(self, t: int) -> Array:
        return read_only(self.arrays(t)[self.name].astype(self.values.dtype, copy=False))


class NamesInParts(NodeNames):
    """Names in the order in which nodes came, those of a snapshot in its part; joined when the first one is read."""

    def __init__(self, parts: Sequence[Part], arrays: Arrays) -> None:
        self._naming = next(part.naming for part in parts if part.naming is not None)
        self._size = parts[-1].num_nodes
        self._parts = [t for t, part in enumerate(parts) if part.naming is not None]
        self._open = arrays

    def __len__(self) -> int:
        return self._size

    def arrays(self) -> Mapping[str, Array]:
        return self._joined

    @cached_property
    def _joined(self) -> Mapping[str, Array]:
        opened = [self._open(t) for t in self._parts]
        if self._naming == "name_int":
            integers = np.concatenate([arrays[NEW + "name_int"] for arrays in opened])
            joined, order = {"name_int": integers}, np.argsort(integers)
        else:
            lengths = [np.diff(arrays[NEW + "name_ptr"]) for arrays in opened]
            ptr = np.concatenate(([0], np.cumsum(np.concatenate(lengths), dtype=np.int64)))
            text = np.concatenate([arrays[NEW + "name_text"] for arrays in opened])
            joined, data = {"name_ptr": ptr, "name_text": text}, text.tobytes()
            names = [data[start:stop] for start, stop in zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True)]
            order = np.array(sorted(range(self._size), key=names.__getitem__), np.int64)
        return joined if bool((order[1:] > order[:-1]).all()) else {**joined, "name_order": order}


def carried(
    name: str, recipe: dict[str, Any] | None, held: RowType | None, parts: Sequence[Part], arrays: Arrays
) -> Carrier | None:
    """What the cells of these parts carry under a name ("x", "y"): rows that they hold, or what a recipe derives."""
    if held is None:
        return from_recipe(recipe, None)
    carrier = from_recipe(recipe or {"kind": "per_cell"}, held.empty())
    assert carrier is not None
    return resting_on(carrier, RowsInParts(held.empty(), _offsets(part.num_cells for part in parts), arrays, name))


def _offsets(sizes: Any) -> IntArray:
    return read_only(np.concatenate(([0], np.cumsum(np.fromiter(sizes, np.int64), dtype=np.int64))))
