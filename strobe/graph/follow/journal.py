"""Journal of a follower: the position in the source, and events whose snapshots are incomplete."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from strobe.errors import FormatError
from strobe.graph.follow.base import RowCounts
from strobe.graph.follow.sources import SourcePosition
from strobe.graph.ingest.columns import Ids, TimeUnit
from strobe.graph.ingest.sources import sql_path
from strobe.io.atomic import sync_folder
from strobe.io.checksum import read_checksummed_json, write_checksummed_json

if TYPE_CHECKING:
    from strobe.graph.ingest.table import Connection


@dataclass(frozen=True)
class EventSegment:
    """A Parquet file of events with their snapshots: number of rows, and the last snapshot."""

    file: str
    rows: int
    last: int


class PendingEvents:
    """Rows with the numbers of their snapshots, in few files: a small file is merged into the next, so that a row is
    written about log(rows) times. The caller records which files are valid."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, con: Connection, query: str, before: Sequence[EventSegment], first: int) -> list[EventSegment]:
        """Add the rows of a query to those of earlier segments; rows before snapshot ``first`` are dropped. Removes no
        file."""
        needed = [segment for segment in before if segment.last >= first]
        [(size,)] = con.execute(f"SELECT count(*) FROM ({query})").fetchall()
        joined = 0
        while joined < len(needed) and needed[-1 - joined].rows <= 2 * size:
            size += needed[-1 - joined].rows
            joined += 1
        large, small = needed[: len(needed) - joined], needed[len(needed) - joined :]
        if small:
            query += f" UNION ALL BY NAME SELECT * FROM {_read_parquet_sql(self._paths(small))} WHERE snap >= {first}"
        return [*large, self._write(con, query)]

    def counts(self, segments: Sequence[EventSegment], first: int) -> Counter[int]:
        """Count the rows of each snapshot from ``first`` on."""
        counted: Counter[int] = Counter()
        for batch in self._scan(segments, pc.field("snap") >= first, ["snap"]):
            snaps, counts = np.unique(batch.column("snap").to_numpy(), return_counts=True)
            counted.update(dict(zip(snaps.tolist(), counts.tolist(), strict=True)))
        return counted

    def rows(self, segments: Sequence[EventSegment], first: int, stop: int) -> pa.RecordBatchReader:
        """Return the rows of snapshots ``first`` up to ``stop``."""
        return self._scan(segments, (pc.field("snap") >= first) & (pc.field("snap") < stop))

    def remove_unused(self, segments: Sequence[EventSegment]) -> None:
        """Remove files that are not among the segments."""
        wanted = {segment.file for segment in segments}
        for path in self.folder.glob("*.parquet"):
            if path.name not in wanted:
                path.unlink()

    def _write(self, con: Connection, query: str) -> EventSegment:
        numbers = [int(path.stem) for path in self.folder.glob("*.parquet")]
        path = self.folder / f"{max(numbers, default=0) + 1:08}.parquet"
        target = str(path).replace("'", "''")
        con.execute(f"COPY ({query}) TO '{target}' (FORMAT parquet)")
        with path.open("rb") as file:
            os.fsync(file.fileno())
        sync_folder(self.folder)
        [(rows, last)] = con.execute(f"SELECT count(*), max(snap) FROM {_read_parquet_sql([path])}").fetchall()
        return EventSegment(path.name, rows, last)

    def _paths(self, segments: Sequence[EventSegment]) -> list[Path]:
        return [self.folder / segment.file for segment in segments]

    def _scan(
        self, segments: Sequence[EventSegment], where: pc.Expression, columns: list[str] | None = None
    ) -> pa.RecordBatchReader:
        if not segments:
            return pa.RecordBatchReader.from_batches(pa.schema([]), [])
        listed = pyarrow.dataset.dataset([str(path) for path in self._paths(segments)], format="parquet")
        return listed.scanner(columns, filter=where).to_reader()


def _read_parquet_sql(paths: Sequence[Path]) -> str:
    listed = ", ".join(sql_path(path) for path in paths)
    return f"read_parquet([{listed}], hive_partitioning=false)"


_JOURNAL_FILE = "journal.json"
_JOURNAL_VERSION = 3


@dataclass(frozen=True, kw_only=True)
class JournalEntry:
    """Position in the source, kinds of its columns, state of the cutter, and segments of pending rows."""

    position: SourcePosition = field(default_factory=dict)
    ids: Ids | None = None
    time_unit: TimeUnit | None = None
    counts: RowCounts = field(default_factory=RowCounts)
    cutter: Mapping[str, Any] | None = None
    segments: tuple[EventSegment, ...] = ()


def read_journal(folder: Path) -> JournalEntry | None:
    """Return the last entry; None if there is none."""
    path = folder / _JOURNAL_FILE
    if not path.exists():
        return None
    try:
        entry = read_checksummed_json(path, "start the run again (--overwrite)")
        if entry.pop("version") != _JOURNAL_VERSION:
            raise FormatError(f"{path} was written by another version")
        counts = RowCounts(**entry.pop("counts"))
        segments = tuple(EventSegment(**segment) for segment in entry.pop("segments"))
        return JournalEntry(counts=counts, segments=segments, **entry)
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path} is damaged: {error}") from error


def write_journal(folder: Path, entry: JournalEntry) -> None:
    """Replace the last entry atomically."""
    write_checksummed_json(folder / _JOURNAL_FILE, {"version": _JOURNAL_VERSION, **asdict(entry)})
