"""Event sources: read rows that were added since a position."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple
from urllib.parse import quote

from strobe.errors import InputError, OptionError, UnknownNameError
from strobe.graph.disk.column import CHUNK_BYTES
from strobe.graph.ingest.sources import cursor_batches, open_tables
from strobe.graph.ingest.table import LINE_COLUMN, SourceTable, stage_batches
from strobe.graph.ingest.text import Layout, NoRowsError, Span, open_bytes, read_rows
from strobe.graph.ingest.text_table import TextOptions, open_text_table

if TYPE_CHECKING:
    from strobe.graph.ingest.table import Connection


SourcePosition = Mapping[str, Any]
"""Position in a source as JSON; {} is its beginning."""


@dataclass(frozen=True)
class NewRows:
    """Rows that have arrived: their tables, and the position after them."""

    tables: Callable[[Connection], list[SourceTable]]
    position: SourcePosition


@dataclass
class EventSource(ABC):
    """A source to which rows are added. It is only read, and no row twice."""

    path: Path

    @abstractmethod
    def poll(self, since: SourcePosition, *, ended: bool) -> NewRows | None:
        """Return the rows after a position; None if there are none. With ``ended`` incomplete rows count, too."""

    def identity(self) -> dict[str, Any]:
        """Return what distinguishes it from other sources."""
        return {"source": str(self.path)}


_UNFINISHED_SUFFIXES = (".tmp", ".part")


@dataclass
class DirectorySource(EventSource):
    """Files that arrive in a directory, in order of their names, in any format of ``ingest``.

    A writer renames a complete file into place: hidden names and those that end in .tmp or .part are ignored. A file
    that was read may be removed; its name must not be used again.
    """

    text: TextOptions
    columns: list[str | int]

    def poll(self, since: SourcePosition, *, ended: bool) -> NewRows | None:
        names, known = self._names(), set(since.get("files", ()))
        new = [self.path / name for name in names if name not in known]
        if not new:
            return None
        return NewRows(lambda con: open_tables(con, new, self.text, self.columns), {"files": names})

    def _names(self) -> list[str]:
        try:
            with os.scandir(self.path) as entries:
                names = [entry.name for entry in entries if entry.is_file()]
        except OSError as error:
            raise InputError(f"{self.path} cannot be read any more: {error}") from error
        return sorted(name for name in names if not name.startswith(".") and not name.endswith(_UNFINISHED_SUFFIXES))


_SQLITE_MAGIC = b"SQLite format 3\0"


def is_database(path: Path) -> bool:
    """Return whether a file is an SQLite database."""
    with path.open("rb") as file:
        return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC


class SqliteSource(EventSource):
    """Rows appended to a table, in order of their ascending rowid. The database is opened read-only, and only while it
    is read."""

    def __init__(self, path: Path, table: str | None) -> None:
        super().__init__(path)
        self.table = self._choose_table(table)

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "table": self.table}

    def poll(self, since: SourcePosition, *, ended: bool) -> NewRows | None:
        known = since.get("rowid")
        after = "" if known is None else f" WHERE rowid > {int(known)}"
        with self._database() as database:
            [(last,)] = database.execute(f"SELECT max(rowid) FROM {self._quoted}{after}").fetchall()
        if last is None:
            return None
        return NewRows(lambda con: [self._rows(con, after or " WHERE true", last)], {"rowid": last})

    def _rows(self, con: Connection, after: str, last: int) -> SourceTable:
        with self._database() as database:
            cursor = database.execute(
                f'SELECT rowid AS "{LINE_COLUMN}", * FROM {self._quoted}{after} AND rowid <= {last} ORDER BY rowid'
            )
            return stage_batches(con, cursor_batches(cursor), f"{self.path}, table {self.table}")

    @property
    def _quoted(self) -> str:
        return '"' + self.table.replace('"', '""') + '"'

    def _choose_table(self, table: str | None) -> str:
        with self._database() as database:
            listed = database.execute(
                "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table' "
                "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
            ).fetchall()
        without_rowid = {name: bool(wr) for name, wr in listed}
        if table is None and len(listed) == 1:
            table = listed[0][0]
        if table is None:
            names = ", ".join(sorted(without_rowid)) or "none"
            raise OptionError(f"say which table of {self.path} to follow (table=…, --table); it has: {names}")
        if table not in without_rowid:
            raise UnknownNameError(f"table in {self.path}", table, without_rowid)
        if without_rowid[table]:
            raise InputError(f"table {table!r} of {self.path} has no rowid, so that new rows cannot be told from old")
        return table

    @contextlib.contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        try:
            with contextlib.closing(sqlite3.connect(f"file:{quote(str(self.path))}?mode=ro", uri=True)) as database:
                yield database
        except sqlite3.Error as error:
            raise InputError(f"{self.path} cannot be read: {error}") from error


_CHECKSUM_BYTES = 1024


class _LineRange(NamedTuple):
    """End of the last complete line, and the number of lines."""

    stop: int
    number: int


@dataclass
class TextFileSource(EventSource):
    """A text file to which lines are appended; an incomplete last line is left until it is complete.

    The layout is detected from the first row. A row with an open quoted field, and the lines after it, are left until
    the field is closed or can no longer be (``records.MAX_LINES``).
    """

    text: TextOptions
    columns: list[str | int]

    def poll(self, since: SourcePosition, *, ended: bool) -> NewRows | None:
        start, lines = since.get("offset", 0), since.get("lines", 0)
        self._check_same_file(since)
        end = self._whole_lines(start, ended)
        if end.number == 0:
            return None
        layout = self._layout(since, end.stop)
        if layout is None:
            return None
        rest_layout = layout if start == 0 else Layout(layout.delimiter, layout.columns, 0)
        if not ended:
            end = self._complete_rows(rest_layout, Span(start, end.stop, lines), end)
        if end.number == 0:
            return None
        span = Span(start, end.stop, lines)
        position = {
            "offset": end.stop,
            "lines": lines + end.number,
            "before": self._checksum(end.stop),
            "layout": asdict(layout),
        }
        return NewRows(lambda con: [open_text_table(self.path, self.text, rest_layout, span)], position)

    def _whole_lines(self, start: int, ended: bool) -> _LineRange:
        stop, count, at = start, 0, start
        with self._file() as file:
            file.seek(start)
            while chunk := file.read(CHUNK_BYTES):
                count += chunk.count(b"\n")
                stop = at + chunk.rfind(b"\n") + 1 if b"\n" in chunk else stop
                at += len(chunk)
        return _LineRange(at, count + 1) if ended and at > stop else _LineRange(stop, count)

    def _complete_rows(self, layout: Layout, span: Span, end: _LineRange) -> _LineRange:
        """Return the lines before a row whose quoted field is still open at their end; all if there is none."""
        assert self.text.codec is not None
        with open_bytes(self.path, span) as file:
            if not any(b'"' in line for line in file):
                return end
        read = read_rows(self.path, layout, self.text.codec, span)
        for _ in read:
            if read.undecided is not None:
                break
        if read.undecided is None:
            return end
        number = read.undecided - 1 - span.lines
        with open_bytes(self.path, span) as file:
            return _LineRange(span.start + sum(len(line) for line in islice(file, number)), number)

    def _layout(self, since: SourcePosition, stop: int) -> Layout | None:
        if "layout" in since:
            return Layout(**since["layout"])
        try:
            return self.text.layout(self.path, self.columns, Span(0, stop))
        except NoRowsError:
            return None

    def _check_same_file(self, since: SourcePosition) -> None:
        if "offset" in since and self._checksum(since["offset"]) != since["before"]:
            raise InputError(
                f"{self.path} is not the file it was: it had been read up to byte {since['offset']:,}, and what stood "
                "before that is gone. Lines may only be appended to it."
            )

    def _checksum(self, offset: int) -> int:
        """Return the checksum of the last bytes before an offset."""
        start = max(0, offset - _CHECKSUM_BYTES)
        with self._file() as file:
            file.seek(start)
            return zlib.crc32(file.read(offset - start))

    def _file(self) -> BinaryIO:
        try:
            return self.path.open("rb")
        except OSError as error:
            raise InputError(f"{self.path} cannot be read any more: {error}") from error
