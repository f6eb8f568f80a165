"""Every snapshot whole, memory-mapped where the graph comes from a directory: a rank's reads become its pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from strobe.graph import DynamicGraph
from strobe.store.base import KeptRows, Store
from strobe.store.whole_rows import WholeRows


@dataclass(frozen=True, kw_only=True)
class Full(Store):
    """The graph as it is. Snapshots are slices of it; nothing is copied."""

    name: ClassVar[str] = "full"

    def rows(self) -> KeptRows:
        return WholeRows()

    def keep(self, graph: DynamicGraph) -> DynamicGraph:
        return graph
