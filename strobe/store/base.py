"""The first axis: how snapshots are kept, and how snapshot t is made."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol

from strobe.graph import DynamicGraph
from strobe.graph.arrays import Array
from strobe.ops.csr import IntArray
from strobe.strategy import Strategy


class KeptRows(Protocol):
    """Rows of features of one server's nodes in consecutive snapshots."""

    def add(self, t: int, nodes: IntArray, x: Array) -> None:
        """The next snapshot: ids, ascending, and their rows, [n, F]."""
        ...

    def drop(self) -> int:
        """Takes the oldest snapshot out; which one it was."""
        ...

    def pick(self, t: int, at: IntArray) -> Array:
        """The rows of some nodes of snapshot t, by their positions in what was added, in any order."""
        ...


@dataclass(frozen=True, kw_only=True)
class Store(Strategy):
    """A way to keep a graph."""

    @abstractmethod
    def rows(self) -> KeptRows:
        """Where one server keeps the rows of its nodes in the snapshots of a window; empty."""

    @abstractmethod
    def keep(self, graph: DynamicGraph) -> DynamicGraph:
        """The same graph, kept in this way."""
