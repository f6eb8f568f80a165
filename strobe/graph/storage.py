"""What is behind a graph and all its views: the snapshots, as arrays or in any other way that can give them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from strobe.graph.arrays import is_mapped
from strobe.ops.csr import FloatArray, IntArray, index_dtype

Time = int | str
Rows = tuple[IntArray, IntArray, FloatArray | None]
"""Arcs of a snapshot: ``row_ptr`` with n_t + 1 offsets from 0 on, ``col`` as positions within it, their weights."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Stored(ABC):
    """Snapshots by number, however they are kept. Cells are numbered t-major: those of snapshot t are
    ``cell_ptr[t]:cell_ptr[t + 1]``."""

    num_nodes: int
    directed: bool
    times: tuple[Time, ...]
    cell_ptr: IntArray  # [T + 1]
    arc_ptr: IntArray  # [T + 1]
    edge_count: IntArray  # [T], an undirected edge counts once

    @property
    @abstractmethod
    def weighted(self) -> bool:
        """Whether arcs have weights."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the arrays it holds, mapped ones among them."""

    @property
    @abstractmethod
    def mapped(self) -> bool:
        """Whether all of it is in files, read page by page."""

    @abstractmethod
    def nodes(self, t: int) -> IntArray:
        """The nodes present at t, ascending."""

    @abstractmethod
    def rows(self, t: int) -> Rows:
        """The arcs of t by destination, columns ascending in each row."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Storage(Stored):
    """The snapshots as arrays, end to end, in memory or memory-mapped.

    Every snapshot has its own CSR, so that ``row_ptr`` and ``col`` are int32 however large the whole is. ``node`` is
    None where every node is present in every snapshot.
    """

    node: IntArray | None  # [C]
    row_ptr: IntArray  # [C + T]
    col: IntArray  # [A]
    weight: FloatArray | None  # [A]

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
        return self.node[self.cell_ptr[t] : self.cell_ptr[t + 1]]

    def rows(self, t: int) -> Rows:
        arcs = slice(int(self.arc_ptr[t]), int(self.arc_ptr[t + 1]))
        row_ptr = self.row_ptr[int(self.cell_ptr[t]) + t : int(self.cell_ptr[t + 1]) + t + 1]
        return row_ptr, self.col[arcs], None if self.weight is None else self.weight[arcs]

    def arrays(self) -> dict[str, Any]:
        """Stored arrays by name; the presence and the weights only where there are any."""
        named = {name: getattr(self, name) for name in ARRAYS}
        return {name: array for name, array in named.items() if array is not None}

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays().values())

    @property
    def mapped(self) -> bool:
        return all(is_mapped(array) for array in self.arrays().values())


ARRAYS = ("cell_ptr", "arc_ptr", "edge_count", "node", "row_ptr", "col", "weight")
