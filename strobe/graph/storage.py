"""Storage behind a graph and its views: snapshots as arrays, or from any other source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from strobe.graph.arrays import is_mapped
from strobe.ops.sparse.csr import Csr, FloatArray, IntArray, index_dtype

Time = int | str


@dataclass(frozen=True, eq=False, kw_only=True)
class GraphStorage(ABC):
    """Snapshots by number. Cells are numbered t-major: those of snapshot t are ``cell_ptr[t]:cell_ptr[t + 1]``."""

    num_nodes: int
    directed: bool
    times: tuple[Time, ...]
    cell_ptr: IntArray  # [T + 1]
    arc_ptr: IntArray  # [T + 1]
    edge_count: IntArray  # [T], an undirected edge counts once
    structure: IntArray | None = None
    """Structure of each snapshot, [T], numbered by first appearance: snapshots with equal numbers have equal nodes,
    arcs and weights. None: every snapshot has its own."""

    @property
    @abstractmethod
    def weighted(self) -> bool:
        """Whether arcs have weights."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of all arrays, memory-mapped ones included."""

    @property
    def is_memory_mapped(self) -> bool:
        """Whether all arrays are memory-mapped."""
        return False

    @abstractmethod
    def nodes(self, t: int) -> IntArray:
        """Return the nodes present at t, ascending."""

    @abstractmethod
    def csr(self, t: int) -> Csr:
        """Return the arcs of t by destination, columns ascending in each row."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ArrayStorage(GraphStorage):
    """Snapshots as concatenated arrays, in memory or memory-mapped.

    Every structure has its own CSR, so ``row_ptr`` and ``col`` are int32 however large the graph is, and is stored once
    however many snapshots have it. ``node`` is None if every node is present in every snapshot. Shapes are those of S
    structures with C' cells and A' arcs.
    """

    node: IntArray | None  # [C']
    row_ptr: IntArray  # [C' + S]
    col: IntArray  # [A']
    weight: FloatArray | None  # [A']

    @cached_property
    def structure_ptr(self) -> tuple[IntArray, IntArray]:
        """Offsets of the structures' cells and arcs, [S + 1] each."""
        if self.structure is None:
            return self.cell_ptr, self.arc_ptr
        first = first_snapshots(self.structure)
        return offsets(np.diff(self.cell_ptr)[first]), offsets(np.diff(self.arc_ptr)[first])

    @cached_property
    def all_nodes(self) -> IntArray:
        nodes: IntArray = np.arange(self.num_nodes, dtype=index_dtype(self.num_nodes))
        nodes.flags.writeable = False
        return nodes

    @property
    def weighted(self) -> bool:
        return self.weight is not None

    def nodes(self, t: int) -> IntArray:
        if self.node is None:
            return self.all_nodes
        cell_ptr, at = self.structure_ptr[0], self._structure_at(t)
        return self.node[cell_ptr[at] : cell_ptr[at + 1]]

    def csr(self, t: int) -> Csr:
        (cell_ptr, arc_ptr), at = self.structure_ptr, self._structure_at(t)
        arcs = slice(int(arc_ptr[at]), int(arc_ptr[at + 1]))
        row_ptr = self.row_ptr[int(cell_ptr[at]) + at : int(cell_ptr[at + 1]) + at + 1]
        return row_ptr, self.col[arcs], None if self.weight is None else self.weight[arcs]

    def _structure_at(self, t: int) -> int:
        return t if self.structure is None else int(self.structure[t])

    def arrays(self) -> dict[str, Any]:
        """Return stored arrays by name; ``structure``, ``node`` and ``weight`` only if the graph has them."""
        named = {name: getattr(self, name) for name in ARRAYS}
        return {name: array for name, array in named.items() if array is not None}

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays().values())

    @property
    def is_memory_mapped(self) -> bool:
        return all(is_mapped(array) for array in self.arrays().values())


ARRAYS = ("cell_ptr", "arc_ptr", "edge_count", "structure", "node", "row_ptr", "col", "weight")


def first_snapshots(structure: IntArray) -> IntArray:
    """Return the first snapshot of each structure, [S]; structures are numbered by first appearance."""
    return np.flatnonzero(np.diff(np.maximum.accumulate(structure), prepend=-1))


def number_by_appearance(structure: IntArray) -> IntArray:
    """Renumber structures by first appearance: those of a part of a graph are then numbered from 0 on."""
    _, first, number = np.unique(structure, return_index=True, return_inverse=True)
    rank = np.empty(first.size, np.int32)
    rank[np.argsort(first)] = np.arange(first.size, dtype=np.int32)
    return rank[number]


def offsets(sizes: IntArray) -> IntArray:
    """Return where consecutive parts of these sizes begin, and the end of the last one, int64."""
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
