"""Staging: rows of any source become one table of valid values; bad rows are reported by file, line and reason."""

from __future__ import annotations

import contextlib
import errno
import heapq
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from strobe.errors import InputError, OptionError, StrobeError
from strobe.graph.ingest.clock import ByColumn, ByFile
from strobe.graph.ingest.columns import (
    ColumnSql,
    Ids,
    TimeUnit,
    guess_ids,
    guess_time,
    id_column,
    number_column,
    text_column,
    time_column,
)
from strobe.graph.ingest.options import IngestOptions
from strobe.graph.ingest.rejects import BadRow, Rejects
from strobe.graph.ingest.table import SourceTable, duckdb_errors_as_input_errors, load_duckdb
from strobe.graph.progress import OnProgress
from strobe.io.lazy_import import lazy_import
from strobe.io.limits import check_address_space

if TYPE_CHECKING:
    import pyarrow as pa

    from strobe.graph.ingest.table import Connection
else:
    pa = lazy_import("pyarrow")


Parse = Callable[[SourceTable], list[ColumnSql]]
"""Return the columns to stage of a table, by its types."""


def stage(
    con: Connection,
    target: str,
    tables: list[SourceTable],
    parse: Parse,
    rejects: Rejects,
    on_progress: OnProgress,
    *,
    numbered: bool = False,
) -> None:
    """Fill table ``target`` with the good rows of all tables: parsed columns and, if ``numbered``, the number of the
    table as column ``file``.

    A text file is first read by the fast path, and line by line only if that finds a fault.
    """
    for number, table in enumerate(tables):
        on_progress(number, len(tables) if len(tables) > 1 else None)
        also = f", {number} AS file" if numbered else ""
        columns = parse(table)
        types = {table.column(column.source): table.type_of(column.source) for column in columns}
        blank = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in types.items())
        empty = f"SELECT {_select_list(columns)}{also} FROM (SELECT {blank}) LIMIT 0"
        with duckdb_errors_as_input_errors(table.name):
            if number == 0:
                con.execute(f"CREATE TABLE {target} AS {empty}")
            _check_same_types(con, target, empty, table)
            if not _insert_fast(con, target, table, parse, also, rejects):
                _insert_row_by_row(con, target, table, parse, also, rejects)
    on_progress(len(tables), len(tables))


def _check_same_types(con: Connection, target: str, empty: str, table: SourceTable) -> None:
    """Check that tables staged together agree, or values would be rounded or cut to those of the first."""
    for (name, kind, *_), (_, other, *_) in zip(
        con.execute(f"DESCRIBE {target}").fetchall(), con.execute(f"DESCRIBE {empty}").fetchall(), strict=True
    ):
        if kind != other:
            raise InputError(f"{table.name}: column {name!r} is {other}, in the tables before it {kind}")


def _insert_fast(con: Connection, target: str, table: SourceTable, parse: Parse, also: str, rejects: Rejects) -> bool:
    """Insert all rows if none is bad; otherwise none."""
    duckdb = load_duckdb()
    interrupts = (KeyboardInterrupt, duckdb.InterruptException, pa.ArrowCancelled)
    kinds: dict[str | int, str] = {}
    for column in parse(table):
        kinds[column.source] = column.kind if kinds.get(column.source, column.kind) == column.kind else "VARCHAR"
    quick = table.read_fast(con, kinds)
    if quick is None:
        return False
    columns = parse(quick)
    good = " AND ".join(column.is_valid for column in columns)
    con.execute("BEGIN")
    try:
        # One scan: a bad row raises an error, so a good table is never read twice.
        con.execute(
            f"INSERT INTO {target} SELECT {_select_list(columns)}{also} FROM {quick.sql} "
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


def _insert_row_by_row(
    con: Connection, target: str, table: SourceTable, parse: Parse, also: str, rejects: Rejects
) -> None:
    placed, unsplit = table.read_with_lines(con, [column.source for column in parse(table)])
    rejects.comment_lines += placed.log.comment_lines
    columns = parse(placed)
    first_bad = " ".join(f"WHEN NOT ({column.is_valid}) THEN {k}" for k, column in enumerate(columns))
    texts = ", ".join(f"CAST({placed.column(column.source)} AS VARCHAR)" for column in columns)
    reasons = ", ".join(column.reason for column in columns)
    cursor = con.execute(
        f"SELECT place, CASE {first_bad} END AS bad, [{texts}], [{reasons}] FROM {placed.sql} "
        f"WHERE CASE {first_bad} END IS NOT NULL ORDER BY 1"
    )
    unreadable = (BadRow(table.name, placed.unit, row.line, "", "", row.reason) for row in unsplit)
    wrong = (
        BadRow(table.name, placed.unit, place, columns[bad].label, values[bad] or "", reason[bad])
        for rows in iter(lambda: cursor.fetchmany(10_000), [])
        for place, bad, values, reason in rows
    )
    in_order = heapq.merge(unreadable, wrong, key=lambda row: row.place)
    while some := list(itertools.islice(in_order, 10_000)):
        rejects.add(some)
    good = " AND ".join(column.is_valid for column in columns)
    con.execute(f"INSERT INTO {target} SELECT {_select_list(columns)}{also} FROM {placed.sql} WHERE {good}")


def _select_list(columns: list[ColumnSql]) -> str:
    return ", ".join(f"{column.value} AS {column.name}" for column in columns)


MIN_ADDRESS_SPACE = 1 << 30
"""Bytes that the process must be able to map: with half of them, DuckDB ended the process."""


@contextlib.contextmanager
def scratch_database(scratch: Path, memory: str) -> Iterator[Connection]:
    """Open a scratch database; report exhausted memory or disk plainly."""
    con, duckdb = _connect(scratch, memory), load_duckdb()
    try:
        yield con
    except duckdb.OutOfMemoryException as error:
        raise StrobeError(f"memory={memory} and the room in {scratch.parent} do not suffice: {error}") from error
    except duckdb.IOException as error:
        if "No space left" in str(error):
            raise OSError(errno.ENOSPC, str(error)) from error
        raise
    finally:
        con.close()


def _connect(scratch: Path, memory: str) -> Connection:
    check_address_space(MIN_ADDRESS_SPACE, "reading tables")
    duckdb = load_duckdb()
    try:
        # An in-memory database spills to this directory, and writes nothing else.
        con: Connection = duckdb.connect(":memory:", config={"memory_limit": memory, "temp_directory": str(scratch)})
    except duckdb.Error as error:
        raise OptionError(
            f"memory={memory!r} is not understood: write a size such as 512MB or 4GB ({error})"
        ) from error
    # Row order is not preserved: nothing depends on it, and it costs memory. Compressing temporary data
    # costs more than it saves.
    for statement in (
        f"SET threads = {len(os.sched_getaffinity(0))}",
        "SET preserve_insertion_order = false",
        "SET TimeZone = 'UTC'",
        "PRAGMA force_compression = 'uncompressed'",
        # A damaged Parquet file may claim that all values are valid: every one is checked.
        "SET disabled_optimizers = 'statistics_propagation'",
    ):
        con.execute(statement)
    return con


def stage_events(
    con: Connection, found: list[SourceTable], options: IngestOptions, rejects: Rejects, on_progress: OnProgress
) -> tuple[Ids, TimeUnit]:
    """Fill the table ``events`` and, with one snapshot per file, ``files``; return the kinds of ids and times."""
    ids = options.ids or guess_ids([s for column in (options.src, options.dst) for s in found[0].samples(con, column)])
    if ids == "string" and not options.renumber:
        raise InputError(f"column {options.src!r} or {options.dst!r} holds names, which cannot stay as node numbers")
    unit = options.time_unit or _guess_time_unit(con, found[0], options)

    def parse(table: SourceTable) -> list[ColumnSql]:
        parsed = [id_column("src", options.src, table, ids), id_column("dst", options.dst, table, ids)]
        if options.time is not None:
            parsed.append(time_column("time", options.time, table, unit))
        if options.weight is not None:
            parsed.append(number_column("weight", options.weight, table))
        if isinstance(options.clock, ByColumn):
            parsed.append(text_column("mark", options.clock.column, table))
        return parsed

    by_file = isinstance(options.clock, ByFile)
    stage(con, "events", found, parse, rejects, on_progress, numbered=by_file)
    if by_file:
        names = [Path(table.name).stem for table in found]
        con.register("listed", pa.table({"file": range(len(names)), "name": names}))
        con.execute("CREATE TABLE files AS SELECT * FROM listed")
    return ids, unit


def _guess_time_unit(con: Connection, table: SourceTable, options: IngestOptions) -> TimeUnit:
    if options.time is None:
        return "number"
    if table.type_of(options.time).startswith(("DATE", "TIMESTAMP")):
        return "iso"
    return guess_time(table.samples(con, options.time))
