"""Full snapshots, memory-mapped where the graph comes from a directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.graph.arrays import Array
from strobe.ops.sparse.csr import IntArray
from strobe.store.base import RowStore, Store


class FullRows:
    """Feature rows of one rank in the snapshots of a window."""

    def __init__(self) -> None:
        self._snapshots: dict[int, tuple[IntArray, Array]] = {}

    def add(self, t: int, nodes: IntArray, x: Array) -> None:
        self._snapshots[t] = nodes, x

    def drop(self) -> int:
        if not self._snapshots:
            raise OptionError("no snapshot to drop: add one first")
        t = next(iter(self._snapshots))
        del self._snapshots[t]
        return t

    def select(self, t: int, positions: IntArray) -> Array:
        rows: Array = self._snapshots[t][1][positions]
        return rows


@dataclass(frozen=True, kw_only=True)
class Full(Store):
    """The graph as it is; snapshots are slices, without copies."""

    name: ClassVar[str] = "full"

    def row_store(self) -> RowStore:
        return FullRows()

    def wrap(self, graph: DynamicGraph) -> DynamicGraph:
        return graph
