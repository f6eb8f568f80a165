"""Reading rows: tables of any source become the staged table ``events``, whose every value is good."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from strobe.errors import InputError, MissingPackageError, OptionError, StrobeError
from strobe.graph.ingest.clock import ByColumn, ByFile
from strobe.graph.ingest.columns import (
    Ids,
    Parsed,
    TimeUnit,
    guess_ids,
    guess_time,
    id_column,
    number_column,
    text_column,
    time_column,
)
from strobe.graph.ingest.options import Options
from strobe.graph.ingest.rejects import Rejects
from strobe.graph.ingest.stage import stage
from strobe.graph.ingest.table import Table
from strobe.graph.progress import OnProgress
from strobe.io.limits import check_address_space

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection

MIN_ADDRESS_SPACE = 1 << 30
"""Bytes that a process must still be allowed to map: with half of that, DuckDB was seen to end the process."""


@contextlib.contextmanager
def database(scratch: Path, memory: str) -> Iterator[Connection]:
    """A scratch database; what goes wrong for want of room is said plainly."""
    con = _connect(scratch, memory)
    import duckdb

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
    try:
        import duckdb
    except ImportError as error:
        raise MissingPackageError("duckdb", "reading tables") from error
    try:
        # A database in memory moves what exceeds its limit to this directory, and writes nothing else.
        con = duckdb.connect(":memory:", config={"memory_limit": memory, "temp_directory": str(scratch)})
    except duckdb.Error as error:
        raise OptionError(
            f"memory={memory!r} is not understood: write a size such as 512MB or 4GB ({error})"
        ) from error
    # Rows keep no order: nothing here depends on it, and it costs memory. Compressing what is read back but twice
    # costs more than it saves.
    for statement in (
        f"SET threads = {len(os.sched_getaffinity(0))}",
        "SET preserve_insertion_order = false",
        "SET TimeZone = 'UTC'",
        "PRAGMA force_compression = 'uncompressed'",
        # A damaged Parquet file may say that all its values are good: every one is looked at.
        "SET disabled_optimizers = 'statistics_propagation'",
    ):
        con.execute(statement)
    return con


def stage_events(
    con: Connection, found: list[Table], options: Options, rejects: Rejects, on_progress: OnProgress
) -> tuple[Ids, TimeUnit]:
    """Fills the table ``events`` and, where every file is a snapshot, ``files``; what ids and times were taken for."""
    ids = options.ids or guess_ids([s for column in (options.src, options.dst) for s in found[0].samples(con, column)])
    if ids == "string" and not options.renumber:
        raise InputError(f"column {options.src!r} or {options.dst!r} holds names, which cannot stay as node numbers")
    unit = options.time_unit or _time_unit(con, found[0], options)

    def parse(table: Table) -> list[Parsed]:
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


def _time_unit(con: Connection, table: Table, options: Options) -> TimeUnit:
    if options.time is None:
        return "number"
    if table.type_of(options.time).startswith(("DATE", "TIMESTAMP")):
        return "iso"
    return guess_time([sample for sample in table.samples(con, options.time) if sample.strip()])
