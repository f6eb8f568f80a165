"""Store axis: how snapshots are stored and rebuilt."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol

from strobe.graph import DynamicGraph
from strobe.graph.arrays import Array
from strobe.ops.sparse.csr import IntArray
from strobe.strategy import Strategy


class RowStore(Protocol):
    """Feature rows of one rank's nodes in consecutive snapshots."""

    def add(self, t: int, nodes: IntArray, x: Array) -> None:
        """Add the next snapshot: ascending node ids and their rows, [n, F]."""
        ...

    def drop(self) -> int:
        """Remove the oldest snapshot and return its number."""
        ...

    def select(self, t: int, positions: IntArray) -> Array:
        """Select rows of snapshot t by their positions among the added rows, in any order."""
        ...


@dataclass(frozen=True, kw_only=True)
class Store(Strategy):
    """How the snapshots of a graph are stored."""

    @abstractmethod
    def row_store(self) -> RowStore:
        """Create an empty row store for the feature rows of one rank."""

    @abstractmethod
    def wrap(self, graph: DynamicGraph) -> DynamicGraph:
        """Store a graph.

        Args:
            graph: the graph.

        Returns:
            A graph with bit-identical snapshots, features and labels.
        """
