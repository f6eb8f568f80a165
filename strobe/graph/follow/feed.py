"""Where rows come from: what has arrived since the last time, and how far reading is then."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strobe.graph.ingest.table import Table

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection

Position = Mapping[str, Any]
"""How far a source has been read, as JSON; {} is its beginning."""


@dataclass(frozen=True)
class Arrival:
    """Rows that have arrived: their tables, and the position after them."""

    tables: Callable[[Connection], list[Table]]
    position: Position


class Feed(ABC):
    """A source of rows that is added to. It is only read, and nothing of it is read twice."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def arrived(self, since: Position, *, ended: bool) -> Arrival | None:
        """The rows after a position; None where there are none. When it has ended, also what looks unfinished."""

    def identity(self) -> dict[str, Any]:
        """What tells it from another source."""
        return {"source": str(self.path)}
