"""Staging: rows of any source become one table of good values; every bad row is known by file, line and reason."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from strobe.errors import InputError
from strobe.graph.ingest.columns import Parsed
from strobe.graph.ingest.rejects import BadRow, Rejects
from strobe.graph.ingest.table import Table, reading
from strobe.graph.progress import OnProgress

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection

Parse = Callable[[Table], list[Parsed]]
"""The columns to stage of a table, by its types."""


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
        columns = parse(table)
        types = {table.column(column.source): table.type_of(column.source) for column in columns}
        blank = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in types.items())
        empty = f"SELECT {_values(columns)}{also} FROM (SELECT {blank}) LIMIT 0"
        with reading(table.name):
            if number == 0:
                con.execute(f"CREATE TABLE {target} AS {empty}")
            _refuse_other_types(con, target, empty, table)
            if not _all_at_once(con, target, table, parse, also, rejects):
                _row_by_row(con, target, table, parse, also, rejects)
    on_progress(len(tables), len(tables))


def _refuse_other_types(con: Connection, target: str, empty: str, table: Table) -> None:
    """Tables staged together must agree, or values would be rounded or cut to those of the first."""
    for (name, kind, *_), (_, other, *_) in zip(
        con.execute(f"DESCRIBE {target}").fetchall(), con.execute(f"DESCRIBE {empty}").fetchall(), strict=True
    ):
        if kind != other:
            raise InputError(f"{table.name}: column {name!r} is {other}, in the tables before it {kind}")


def _all_at_once(con: Connection, target: str, table: Table, parse: Parse, also: str, rejects: Rejects) -> bool:
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
        if any(isinstance(cause, interrupts) for cause in (error, *quick.log.failures)):
            raise KeyboardInterrupt from error
        con.execute("ROLLBACK")
        return False
    con.execute("COMMIT")
    rejects.comment_lines += quick.log.comment_lines
    return True


def _row_by_row(con: Connection, target: str, table: Table, parse: Parse, also: str, rejects: Rejects) -> None:
    placed, unsplit = table.carefully(con, [column.source for column in parse(table)])
    rejects.comment_lines += placed.log.comment_lines
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
