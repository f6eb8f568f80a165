"""The first axis: how snapshots are kept, and how snapshot t is made."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from strobe.graph import DynamicGraph
from strobe.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class Store(Strategy):
    """A way to keep a graph."""

    @abstractmethod
    def keep(self, graph: DynamicGraph) -> DynamicGraph:
        """The same graph, kept in this way."""
