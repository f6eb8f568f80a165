"""The contract of following: a source is asked again and again, and a graph grows by what is complete."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

from strobe.graph.dynamic import DynamicGraph
from strobe.graph.growing import Growing


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Rows of events since the graph was begun: read, too late for their snapshots, and bad (left out, if allowed).

    ``comment_lines`` of text files are no rows.
    """

    rows: int = 0
    late_rows: int = 0
    bad_rows: int = 0
    comment_lines: int = 0


class Following(ABC):
    """A source whose snapshots arrive, and the graph on disk that they become.

    ``ended`` says that nothing more will come. Whenever the process is killed, following with the same options goes on
    where it was: nothing is lost, nothing is counted twice.
    """

    def __init__(self, graph: Growing) -> None:
        self.graph = graph
        self.ended = False

    @abstractmethod
    def poll(self, *, ended: bool = False) -> int:
        """Builds all snapshots that are complete by now; how many there are. With ``ended`` the source has said all
        it will, so that its last snapshot is complete, too."""

    @property
    def counts(self) -> Counts:
        """What became of the rows; a source of snapshots has none."""
        return Counts()

    def open(self, snapshots: int | None = None) -> DynamicGraph:
        """The first so many snapshots, by default all that are built, over the nodes known after them."""
        return self.graph.open(snapshots)

    def close(self) -> None:
        """Lets another process go on."""
        self.graph.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
