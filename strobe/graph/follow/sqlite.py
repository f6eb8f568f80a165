"""A table of an SQLite database to which rows are appended."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from strobe.errors import InputError, OptionError, UnknownNameError
from strobe.graph.follow.feed import Arrival, Feed, Position
from strobe.graph.ingest.batches import cursor_batches
from strobe.graph.ingest.table import PLACE, Table, staged

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection

_MAGIC = b"SQLite format 3\0"


def is_database(path: Path) -> bool:
    """Whether a file is an SQLite database."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


class SqliteTable(Feed):
    """Rows that are appended to a table, in order of their rowid, which must ascend. The database is opened to read
    only, and for no longer than that takes."""

    def __init__(self, path: Path, table: str | None) -> None:
        super().__init__(path)
        self.table = self._chosen(table)

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "table": self.table}

    def arrived(self, since: Position, *, ended: bool) -> Arrival | None:
        known = since.get("rowid")
        after = "" if known is None else f" WHERE rowid > {int(known)}"
        with self._database() as database:
            [(last,)] = database.execute(f"SELECT max(rowid) FROM {self._quoted}{after}").fetchall()
        if last is None:
            return None
        return Arrival(lambda con: [self._rows(con, after or " WHERE true", last)], {"rowid": last})

    def _rows(self, con: Connection, after: str, last: int) -> Table:
        with self._database() as database:
            found = database.execute(
                f'SELECT rowid AS "{PLACE}", * FROM {self._quoted}{after} AND rowid <= {last} ORDER BY rowid'
            )
            return staged(con, cursor_batches(found), f"{self.path}, table {self.table}")

    @property
    def _quoted(self) -> str:
        return '"' + self.table.replace('"', '""') + '"'

    def _chosen(self, table: str | None) -> str:
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
