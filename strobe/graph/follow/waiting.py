"""Events that wait for their snapshots, on disk."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from strobe.graph.ingest.tables import this_path
from strobe.io.atomic import sync_folder

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
        joined = 0
        while joined < len(needed) and needed[-1 - joined].rows <= 2 * size:
            size += needed[-1 - joined].rows
            joined += 1
        kept, small = needed[: len(needed) - joined], needed[len(needed) - joined :]
        parts = [query, *([f"SELECT * FROM {_parquet(self._paths(small))} WHERE snap >= {first}"] if small else [])]
        return [*kept, self._written(con, " UNION ALL BY NAME ".join(parts))]

    def counts(self, segments: Sequence[Segment], first: int) -> Counter[int]:
        """Rows of each snapshot from ``first`` on."""
        counted: Counter[int] = Counter()
        for batch in self._from(segments, pc.field("snap") >= first, ["snap"]):
            snaps, counts = np.unique(batch.column("snap").to_numpy(), return_counts=True)
            counted.update(dict(zip(snaps.tolist(), counts.tolist(), strict=True)))
        return counted

    def rows(self, segments: Sequence[Segment], first: int, stop: int) -> pa.RecordBatchReader:
        """The rows of snapshots ``first`` up to ``stop``."""
        return self._from(segments, (pc.field("snap") >= first) & (pc.field("snap") < stop))

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
        [(rows, last)] = con.execute(f"SELECT count(*), max(snap) FROM {_parquet([path])}").fetchall()
        return Segment(path.name, rows, last)

    def _paths(self, segments: Sequence[Segment]) -> list[Path]:
        return [self.folder / segment.file for segment in segments]

    def _from(
        self, segments: Sequence[Segment], where: pc.Expression, columns: list[str] | None = None
    ) -> pa.RecordBatchReader:
        if not segments:
            return pa.RecordBatchReader.from_batches(pa.schema([]), [])
        listed = pyarrow.dataset.dataset([str(path) for path in self._paths(segments)], format="parquet")
        return listed.scanner(columns, filter=where).to_reader()


def _parquet(paths: Sequence[Path]) -> str:
    listed = ", ".join(this_path(path) for path in paths)
    return f"read_parquet([{listed}], hive_partitioning=false)"
