"""Graphs in parts: one saved graph per snapshot, mapped on first use."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, Self

import numpy as np

from strobe.graph.arrays import Array, RowType, read_only
from strobe.graph.disk.metadata import NEW_PREFIX, check_part_metadata, field_errors_as_format_errors, read_metadata
from strobe.graph.features import FeatureProvider, LazyPerCell, from_recipe, replace_stored
from strobe.graph.names import NodeNames
from strobe.graph.storage import GraphStorage, Time
from strobe.ops.sparse.csr import Csr, IntArray, index_dtype

ArraysOfPart = Callable[[int], Mapping[str, Array]]
"""Return the arrays of part t, by name."""


@dataclass(frozen=True)
class Part:
    """One snapshot of a graph in parts, as its metadata describe it."""

    folder: Path
    meta: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Self:
        meta = read_metadata(folder)
        with field_errors_as_format_errors(folder):
            check_part_metadata(meta)
        return cls(folder, meta)

    @property
    def num_nodes(self) -> int:
        """Number of known nodes after this snapshot."""
        return int(self.meta["num_nodes"])

    @property
    def time(self) -> Time:
        return self.meta["times"][0]  # type: ignore[no-any-return]

    @property
    def num_edges(self) -> int:
        return int(self.meta["info"]["edges"])

    @property
    def info(self) -> Mapping[str, Any]:
        """Graph metadata from this snapshot on."""
        return self.meta["info"]["info"]  # type: ignore[no-any-return]

    @property
    def num_cells(self) -> int:
        return int(self.meta["arrays"]["row_ptr"]["shape"][0]) - 1

    @property
    def num_arcs(self) -> int:
        return int(self.meta["arrays"]["col"]["shape"][0])

    @property
    def name_array(self) -> str | None:
        """Array with the names of new nodes; None if there are none."""
        return next((kind for kind in ("name_int", "name_ptr") if NEW_PREFIX + kind in self.meta["arrays"]), None)

    @property
    def num_names(self) -> int:
        """Number of names that the part adds."""
        arrays, naming = self.meta["arrays"], self.name_array
        return 0 if naming is None else int(arrays[NEW_PREFIX + naming]["shape"][0]) - (naming == "name_ptr")

    @property
    def nbytes(self) -> int:
        arrays = self.meta["arrays"].values()
        return sum(math.prod(array["shape"]) * np.dtype(array["dtype"]).itemsize for array in arrays)


def widen_row_type(before: RowType | None, part: Part, name: str) -> RowType | None:
    """Return the type that holds the rows of one more part; None if parts have no such array."""
    entry = part.meta["arrays"].get(name)
    if entry is None:
        return before
    # An empty array has no meaningful dtype: [] is float64.
    dtypes = [None if before is None else before.dtype, np.dtype(entry["dtype"]) if entry["shape"][0] else None]
    known = [dtype for dtype in dtypes if dtype is not None]
    return RowType(tuple(entry["shape"][1:]), np.result_type(*known) if known else None)


def common_row_type(parts: Sequence[Part], name: str, before: RowType | None = None) -> RowType | None:
    """Return the type that holds the rows of all parts and of ``before``."""
    return reduce(lambda known, part: widen_row_type(known, part, name), parts, before)


@dataclass(frozen=True, eq=False, kw_only=True)
class PartStorage(GraphStorage):
    """Storage with one part per snapshot."""

    arrays: ArraysOfPart
    weight_dtype: np.dtype[Any] | None
    num_bytes: int
    num_known: IntArray  # [T], number of known nodes at t

    @classmethod
    def from_parts(cls, parts: Sequence[Part], arrays: ArraysOfPart, *, directed: bool, weighted: bool) -> Self:
        return cls(
            num_nodes=parts[-1].num_nodes if parts else 0,
            directed=directed,
            times=tuple(part.time for part in parts),
            cell_ptr=_offsets(part.num_cells for part in parts),
            arc_ptr=_offsets(part.num_arcs for part in parts),
            edge_count=read_only(np.array([part.num_edges for part in parts], np.int64)),
            arrays=arrays,
            weight_dtype=(common_row_type(parts, "weight") or RowType((), None)).empty().dtype if weighted else None,
            num_bytes=sum(part.nbytes for part in parts),
            num_known=np.array([part.num_nodes for part in parts], np.int64),
        )

    @property
    def weighted(self) -> bool:
        return self.weight_dtype is not None

    @property
    def nbytes(self) -> int:
        return self.num_bytes

    @property
    def is_memory_mapped(self) -> bool:
        return True

    def nodes(self, t: int) -> IntArray:
        node = self.arrays(t).get("node")
        if node is not None:
            return node
        everyone: IntArray = np.arange(self.num_known[t], dtype=index_dtype(self.num_nodes))
        return read_only(everyone)

    def csr(self, t: int) -> Csr:
        arrays = self.arrays(t)
        weight = None if self.weight_dtype is None else arrays["weight"].astype(self.weight_dtype, copy=False)
        return arrays["row_ptr"], arrays["col"], weight


@dataclass(frozen=True, eq=False)
class PartFeatures(LazyPerCell):
    """Values per cell, each snapshot's in its part."""

    arrays: ArraysOfPart
    name: str

    @property
    def is_memory_mapped(self) -> bool:
        return True

    def rows_at(self, t: int) -> Array:
        return read_only(self.arrays(t)[self.name].astype(self.values.dtype, copy=False))


class PartNames(NodeNames):
    """Names in order of arrival, those of new nodes in each part; concatenated on first use."""

    def __init__(self, parts: Sequence[Part], arrays: ArraysOfPart) -> None:
        self._naming = next(part.name_array for part in parts if part.name_array is not None)
        self._size = parts[-1].num_nodes
        self._parts = [t for t, part in enumerate(parts) if part.name_array is not None]
        self._open = arrays

    def __len__(self) -> int:
        return self._size

    def arrays(self) -> Mapping[str, Array]:
        return self._concatenated

    @cached_property
    def _concatenated(self) -> Mapping[str, Array]:
        opened = [self._open(t) for t in self._parts]
        if self._naming == "name_int":
            integers = np.concatenate([arrays[NEW_PREFIX + "name_int"] for arrays in opened])
            joined, order = {"name_int": integers}, np.argsort(integers)
        else:
            lengths = [np.diff(arrays[NEW_PREFIX + "name_ptr"]) for arrays in opened]
            ptr = np.concatenate(([0], np.cumsum(np.concatenate(lengths), dtype=np.int64)))
            text = np.concatenate([arrays[NEW_PREFIX + "name_text"] for arrays in opened])
            joined, data = {"name_ptr": ptr, "name_text": text}, text.tobytes()
            names = [data[start:stop] for start, stop in zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True)]
            order = np.array(sorted(range(self._size), key=names.__getitem__), np.int64)
        return joined if bool((order[1:] > order[:-1]).all()) else {**joined, "name_order": order}


def make_provider(
    name: str, recipe: dict[str, Any] | None, declared: RowType | None, parts: Sequence[Part], arrays: ArraysOfPart
) -> FeatureProvider | None:
    """Return the provider of "x" or "y" over these parts: stored rows, or a derived recipe."""
    rows = common_row_type(parts, name, declared)
    if rows is None:
        return from_recipe(recipe, None)
    provider = from_recipe(recipe or {"kind": "per_cell"}, rows.empty())
    assert provider is not None
    cell_ptr = _offsets(part.num_cells for part in parts)
    return replace_stored(provider, PartFeatures(rows.empty(), cell_ptr, arrays, name))


def _offsets(sizes: Any) -> IntArray:
    return read_only(np.concatenate(([0], np.cumsum(np.fromiter(sizes, np.int64), dtype=np.int64))))
