"""Contract of following: a source is polled, and a graph grows by its complete snapshots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

from strobe.graph.disk.growing import GrowingGraph
from strobe.graph.dynamic import DynamicGraph


@dataclass(frozen=True, kw_only=True)
class RowCounts:
    """Rows of events so far: read, late (after their snapshot was complete), and bad (left out).

    ``comment_lines`` of text files are no rows.
    """

    rows: int = 0
    late_rows: int = 0
    bad_rows: int = 0
    comment_lines: int = 0


class Follower(ABC):
    """A source whose snapshots arrive, and the growing graph on disk built from them.

    ``ended`` means that no more snapshots will come. After the process was killed, following with the same options
    resumes: no row is lost or counted twice.
    """

    def __init__(self, graph: GrowingGraph) -> None:
        self.graph = graph
        self.ended = False

    @abstractmethod
    def poll(self, *, ended: bool = False) -> int:
        """Build all complete snapshots and return their number. With ``ended`` the last snapshot is complete, too."""

    @property
    def counts(self) -> RowCounts:
        """Numbers of rows; all zero for a source of snapshots."""
        return RowCounts()

    def open(self, snapshots: int | None = None) -> DynamicGraph:
        """Open the first ``snapshots`` snapshots (default: all) over the nodes known after them."""
        return self.graph.open(snapshots)

    def close(self) -> None:
        """Release the graph to other processes."""
        self.graph.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
