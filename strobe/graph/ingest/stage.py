"""Staging: rows of any source become one table of good values; every bad row is known by file, line and reason."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.errors import BadRowsError
from strobe.graph.ingest import text
from strobe.graph.ingest.columns import Parsed
from strobe.graph.ingest.tables import Table

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection

_SHOWN = 10


@dataclass(frozen=True)
class BadRow:
    """A row that was refused: where it stands, what it holds, what is wrong."""

    source: str
    unit: str
    place: int
    column: str
    value: str
    reason: str

    def __str__(self) -> str:
        what = f"column {self.column!r}: {self.value!r} " if self.column else ""
        return f"{self.source}, {self.unit} {self.place}: {what}{self.reason}"


@dataclass
class Rejects:
    """Bad rows: counted, the first ones kept to show, all of them written where a file is given."""

    path: Path | None = None
    count: int = 0
    shown: list[BadRow] = field(default_factory=list)

    def add(self, rows: list[BadRow]) -> None:
        """Takes more rows; the file is begun with the first."""
        if not rows:
            return
        if self.path is not None:
            fresh = self.count == 0
            with self.path.open("w" if fresh else "a", newline="") as file:
                writer = csv.writer(file)
                if fresh:
                    writer.writerow(["source", "place", "column", "value", "reason"])
                writer.writerows([row.source, row.place, row.column, row.value, row.reason] for row in rows)
        self.count += len(rows)
        self.shown += rows[: _SHOWN - len(self.shown)]

    def refuse(self) -> None:
        """Raises if there is any bad row."""
        if self.count:
            listed = "\n".join(f"  {row}" for row in self.shown)
            more = f"\n  … and {self.count - len(self.shown):,} more" if self.count > len(self.shown) else ""
            raise BadRowsError(
                f"{self.count:,} bad {'row' if self.count == 1 else 'rows'}; nothing was written:\n{listed}{more}\n"
                "Mend them, or leave them out with --skip-bad-rows."
            )


def stage(
    con: Connection,
    target: str,
    tables: list[Table],
    parse: Callable[[Table], list[Parsed]],
    rejects: Rejects,
    on_progress: Callable[[int, int | None], None],
) -> None:
    """Fills table ``target`` with the good rows of all tables: their parsed columns and the number of their table.

    A text file is first read the fast way; only if that finds anything to object to is it read line by line.
    """
    created = False
    for number, table in enumerate(tables):
        on_progress(number, len(tables) if len(tables) > 1 else None)
        columns = parse(table)
        if not created:
            con.execute(f"CREATE TABLE {target} AS SELECT {_values(columns)}, 0 AS file FROM {table.sql} LIMIT 0")
            created = True
        if not _all_good(con, target, table, columns, number):
            _row_by_row(con, target, table, columns, number, rejects)
    on_progress(len(tables), len(tables))


def _all_good(con: Connection, target: str, table: Table, columns: list[Parsed], number: int) -> bool:
    """Inserts all rows if none is bad; else none."""
    import duckdb

    if table.place is None and table.encoding.lower() not in ("utf-8", "utf8"):
        return False
    good = " AND ".join(column.good for column in columns)
    con.execute("BEGIN")
    try:
        # One scan: a bad row makes the error, so a good table is never read twice.
        con.execute(
            f"INSERT INTO {target} SELECT {_values(columns)}, {number} FROM {table.sql} "
            f"WHERE CASE WHEN {good} THEN true ELSE error('bad row') END"
        )
        complete = _has_every_line(con, target, table, number)
    except duckdb.Error:
        complete = False
    con.execute("COMMIT" if complete else "ROLLBACK")
    return complete


def _has_every_line(con: Connection, target: str, table: Table, number: int) -> bool:
    """Whether a text file read the fast way gave as many rows as it has lines: that no row was lost is not assumed."""
    if table.place is not None or table.path is None or table.layout is None:
        return True
    [(rows,)] = con.execute(f"SELECT count(*) FROM {target} WHERE file = {number}").fetchall()
    return bool(rows == text.count_lines(table.path) - table.layout.skip)


def _row_by_row(
    con: Connection, target: str, table: Table, columns: list[Parsed], number: int, rejects: Rejects
) -> None:
    placed, unsplit = table.carefully(con)
    rejects.add([BadRow(table.name, placed.unit, row.line, "", "", row.reason) for row in unsplit])
    first_bad = " ".join(f"WHEN NOT ({column.good}) THEN {k}" for k, column in enumerate(columns))
    texts = ", ".join(f"CAST({placed.column(column.source)} AS VARCHAR)" for column in columns)
    reasons = ", ".join(column.reason for column in columns)
    found = con.execute(
        f"SELECT {placed.place}, CASE {first_bad} END AS bad, [{texts}], [{reasons}] FROM {placed.sql} "
        f"WHERE CASE {first_bad} END IS NOT NULL ORDER BY 1"
    )
    while rows := found.fetchmany(10_000):
        rejects.add(
            [
                BadRow(table.name, placed.unit, place, columns[bad].label, values[bad] or "", reason[bad])
                for place, bad, values, reason in rows
            ]
        )
    good = " AND ".join(column.good for column in columns)
    con.execute(f"INSERT INTO {target} SELECT {_values(columns)}, {number} FROM {placed.sql} WHERE {good}")


def _values(columns: list[Parsed]) -> str:
    return ", ".join(f"{column.value} AS {column.name}" for column in columns)
