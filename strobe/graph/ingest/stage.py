"""Staging: rows of any source become one table of good values; every bad row is known by file, line and reason."""

from __future__ import annotations

import csv
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from strobe.errors import BadRowsError, InputError, OptionError
from strobe.graph.ingest.columns import Parsed
from strobe.graph.ingest.tables import Table
from strobe.graph.progress import OnProgress

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection

Parse = Callable[[Table], list[Parsed]]
"""The columns to stage of a table, by its types."""

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
    """Bad rows: counted, the first ones kept to show, all of them written where a file is given, which is begun anew
    unless it shall be gone on with."""

    path: Path | None = None
    goes_on: bool = False
    count: int = 0
    shown: list[BadRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.goes_on:
                self.path.unlink(missing_ok=True)  # of an earlier run
        except OSError as error:
            raise OptionError(f"rejected rows cannot be written to {self.path}: {error}") from error

    def add(self, rows: list[BadRow]) -> None:
        """Takes more rows; the file is begun with the first."""
        if not rows:
            return
        if self.path is not None:
            fresh = not self.path.exists()
            with self.path.open("a", newline="") as file:
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
            first = self.shown[0]
            if first.unit == "line" and first.place == 1:
                listed += "\n  Line 1 may be a header: say so with --header (TextOptions(header=True))."
            more = f"\n  … and {self.count - len(self.shown):,} more" if self.count > len(self.shown) else ""
            raise BadRowsError(
                f"{self.count:,} bad {'row' if self.count == 1 else 'rows'}; nothing was written:\n{listed}{more}\n"
                "Mend the table, or leave them out with --skip-bad-rows (skip_bad_rows=True)."
            )


def stage(
    con: Connection,
    target: str,
    tables: list[Table],
    parse: Parse,
    rejects: Rejects,
    on_progress: OnProgress,
    *,
    numbered: bool = False,
) -> None:
    """Fills table ``target`` with the good rows of all tables: their parsed columns and, if ``numbered``, the number
    of their table as column ``file``.

    A text file is first read the fast way; only if that finds anything to object to is it read line by line.
    """
    for number, table in enumerate(tables):
        on_progress(number, len(tables) if len(tables) > 1 else None)
        also = f", {number} AS file" if numbered else ""
        blank = ", ".join(f"CAST(NULL AS {kind}) AS {table.column(name)}" for name, kind in table.types.items())
        empty = f"SELECT {_values(parse(table))}{also} FROM (SELECT {blank}) LIMIT 0"
        if number == 0:
            con.execute(f"CREATE TABLE {target} AS {empty}")
        _refuse_other_types(con, target, empty, table)
        if not _all_at_once(con, target, table, parse, also):
            _row_by_row(con, target, table, parse, also, rejects)
    on_progress(len(tables), len(tables))


def _refuse_other_types(con: Connection, target: str, empty: str, table: Table) -> None:
    """Tables staged together must agree, or values would be rounded or cut to those of the first."""
    for (name, kind, *_), (_, other, *_) in zip(
        con.execute(f"DESCRIBE {target}").fetchall(), con.execute(f"DESCRIBE {empty}").fetchall(), strict=True
    ):
        if kind != other:
            raise InputError(f"{table.name}: column {name!r} is {other}, in the tables before it {kind}")


def _all_at_once(con: Connection, target: str, table: Table, parse: Parse, also: str) -> bool:
    """Inserts all rows if none is bad; else none."""
    import duckdb

    interrupts = (KeyboardInterrupt, duckdb.InterruptException, pa.ArrowCancelled)
    kinds: dict[str | int, str] = {}
    for column in parse(table):
        kinds[column.source] = column.kind if kinds.get(column.source, column.kind) == column.kind else "VARCHAR"
    quick = table.quickly(con, kinds)
    if quick is None:
        return False
    columns = parse(quick)
    good = " AND ".join(column.good for column in columns)
    con.execute("BEGIN")
    try:
        # One scan: a bad row makes an error, so a good table is never read twice.
        con.execute(
            f"INSERT INTO {target} SELECT {_values(columns)}{also} FROM {quick.sql} "
            f"WHERE CASE WHEN {good} THEN true ELSE error('bad row') END"
        )
    except (duckdb.Error, pa.ArrowException) as error:
        if any(isinstance(cause, interrupts) for cause in (error, *quick.failures)):
            raise KeyboardInterrupt from error
        con.execute("ROLLBACK")
        return False
    con.execute("COMMIT")
    return True


def _row_by_row(con: Connection, target: str, table: Table, parse: Parse, also: str, rejects: Rejects) -> None:
    placed, unsplit = table.carefully(con)
    columns = parse(placed)
    first_bad = " ".join(f"WHEN NOT ({column.good}) THEN {k}" for k, column in enumerate(columns))
    texts = ", ".join(f"CAST({placed.column(column.source)} AS VARCHAR)" for column in columns)
    reasons = ", ".join(column.reason for column in columns)
    found = con.execute(
        f"SELECT place, CASE {first_bad} END AS bad, [{texts}], [{reasons}] FROM {placed.sql} "
        f"WHERE CASE {first_bad} END IS NOT NULL ORDER BY 1"
    )
    unreadable = (BadRow(table.name, placed.unit, row.line, "", "", row.reason) for row in unsplit)
    wrong = (
        BadRow(table.name, placed.unit, place, columns[bad].label, values[bad] or "", reason[bad])
        for rows in iter(lambda: found.fetchmany(10_000), [])
        for place, bad, values, reason in rows
    )
    in_order = heapq.merge(unreadable, wrong, key=lambda row: row.place)
    while some := list(itertools.islice(in_order, 10_000)):
        rejects.add(some)
    good = " AND ".join(column.good for column in columns)
    con.execute(f"INSERT INTO {target} SELECT {_values(columns)}{also} FROM {placed.sql} WHERE {good}")


def _values(columns: list[Parsed]) -> str:
    return ", ".join(f"{column.value} AS {column.name}" for column in columns)
