"""A snapshot: present nodes, arcs between them, features and labels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from strobe.graph.arrays import Array, read_only
from strobe.graph.features import FeatureProvider
from strobe.ops.graph.degrees import count_occurrences
from strobe.ops.sparse.csr import FloatArray, IntArray, expand_rows, transpose


@dataclass(frozen=True, eq=False, kw_only=True)
class Snapshot:
    """Snapshot ``t``: cells in ascending order of node, arcs as CSR by destination.

    Row i has the sources of the arcs that end in ``nodes[i]``, as ascending positions in ``nodes``. An undirected edge
    is two arcs, a self-loop one. All arrays are read-only, and views where possible.
    """

    t: int
    time: int | str
    nodes: IntArray
    row_ptr: IntArray
    col: IntArray
    weight: FloatArray | None
    num_edges: int
    directed: bool
    has_all_nodes: bool
    stored_cells: slice | IntArray
    features: FeatureProvider | None
    labels: FeatureProvider | None

    @property
    def num_nodes(self) -> int:
        """Number of present nodes, which is the number of cells."""
        return int(self.nodes.size)

    @property
    def num_arcs(self) -> int:
        """Number of stored arcs; an undirected edge that is no self-loop counts twice."""
        return int(self.col.size)

    @cached_property
    def x(self) -> Array | None:
        """Features of the cells, [n, F]."""
        return None if self.features is None else read_only(self.features.rows(self))

    @cached_property
    def y(self) -> Array | None:
        """Labels of the cells, [n] or [n, K]; -1 (integers) or NaN (floats) marks an unlabeled cell."""
        return None if self.labels is None else read_only(self.labels.rows(self))

    @cached_property
    def in_degree(self) -> IntArray:
        """Number of arcs that end in each cell, [n]."""
        return read_only(np.diff(self.row_ptr))

    @cached_property
    def out_degree(self) -> IntArray:
        """Number of arcs that start in each cell, [n]."""
        if not self.directed:
            return self.in_degree
        return read_only(count_occurrences(self.col, self.num_nodes, self.row_ptr.dtype))

    @cached_property
    def transposed(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return CSR by source: (row_ptr, col, position of each entry in ``col``). Computed once."""
        row_ptr, col, position = transpose(self.row_ptr, self.col, self.num_nodes)
        return read_only(row_ptr), read_only(col), read_only(position)

    def arcs(self) -> tuple[IntArray, IntArray]:
        """Return (source, destination) of every stored arc, as positions in ``nodes``."""
        return self.col, expand_rows(self.row_ptr)

    def edges(self) -> tuple[IntArray, IntArray, FloatArray | None]:
        """Return (source, destination, weight) of every edge by global id; an undirected edge is listed once."""
        src, dst = self.arcs()
        weight = self.weight
        if not self.directed:
            once = src <= dst
            src, dst = src[once], dst[once]
            weight = None if weight is None else weight[once]
        return self.nodes[src], self.nodes[dst], weight

    def __eq__(self, other: object) -> bool:
        """Return whether nodes, edges, weights, features and labels are equal; ``t`` and time are ignored."""
        if not isinstance(other, Snapshot):
            return NotImplemented
        return (
            self.directed == other.directed
            and np.array_equal(self.nodes, other.nodes)
            and np.array_equal(self.row_ptr, other.row_ptr)
            and np.array_equal(self.col, other.col)
            and _arrays_equal(self.weight, other.weight)
            and _arrays_equal(self.x, other.x)
            and _arrays_equal(self.y, other.y)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Snapshot(t={self.t}, time={self.time!r}, nodes={self.num_nodes:,}, edges={self.num_edges:,})"


def _arrays_equal(a: Array | None, b: Array | None) -> bool:
    if a is None or b is None:
        return a is b
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f" and b.dtype.kind == "f")
