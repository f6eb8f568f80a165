"""Events that wait for their snapshots, on disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strobe.atomic import sync_folder
from strobe.graph.ingest.tables import this_path

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection


@dataclass(frozen=True)
class Segment:
    """A Parquet file of events with their snapshots: how many there are, and the last snapshot among them."""

    file: str
    rows: int
    last: int


class Waiting:
    """Good rows with the numbers of their snapshots, in few files: a small one is joined to the next, so that a row is
    written about log(rows) times. Which files count is for the caller to remember."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, con: Connection, query: str, before: Sequence[Segment], first: int) -> list[Segment]:
        """Takes the rows of a query beside those of earlier segments, of which snapshots before ``first`` are needed
        no more. Nothing is removed yet."""
        needed = [segment for segment in before if segment.last >= first]
        [(size,)] = con.execute(f"SELECT count(*) FROM ({query})").fetchall()
        if size == 0:
            return needed
        joined = 0
        while joined < len(needed) and needed[-1 - joined].rows <= 2 * size:
            size += needed[-1 - joined].rows
            joined += 1
        kept, small = needed[: len(needed) - joined], needed[len(needed) - joined :]
        parts = [query, *([f"SELECT * FROM {self._source(small)} WHERE snap >= {first}"] if small else [])]
        return [*kept, self._written(con, " UNION ALL BY NAME ".join(parts))]

    def counts(self, con: Connection, segments: Sequence[Segment], first: int) -> dict[int, int]:
        """Rows of each snapshot from ``first`` on that has any."""
        if not segments:
            return {}
        sql = f"SELECT snap, count(*) FROM {self._source(segments)} WHERE snap >= {first} GROUP BY snap"
        return dict(con.execute(sql).fetchall())

    def rows(self, con: Connection, segments: Sequence[Segment], first: int, stop: int) -> Any:
        """The rows of snapshots ``first`` up to ``stop``, as a stream of Arrow batches."""
        sql = f"SELECT * FROM {self._source(segments)} WHERE snap >= {first} AND snap < {stop}"
        return con.sql(sql).to_arrow_reader(100_000)

    def tidy(self, segments: Sequence[Segment]) -> None:
        """Removes what no longer counts."""
        wanted = {segment.file for segment in segments}
        for path in self.folder.glob("*.parquet"):
            if path.name not in wanted:
                path.unlink()

    def _written(self, con: Connection, query: str) -> Segment:
        numbers = [int(path.stem) for path in self.folder.glob("*.parquet")]
        path = self.folder / f"{max(numbers, default=0) + 1:08}.parquet"
        target = str(path).replace("'", "''")
        con.execute(f"COPY ({query}) TO '{target}' (FORMAT parquet)")
        with path.open("rb") as file:
            os.fsync(file.fileno())
        sync_folder(self.folder)
        written = self._source([Segment(path.name, 0, 0)])
        [(rows, last)] = con.execute(f"SELECT count(*), max(snap) FROM {written}").fetchall()
        return Segment(path.name, rows, last)

    def _source(self, segments: Sequence[Segment]) -> str:
        listed = ", ".join(this_path(self.folder / segment.file) for segment in segments)
        return f"read_parquet([{listed}], hive_partitioning=false)"
