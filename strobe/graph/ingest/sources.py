"""Sources of rows: files by name, or objects that have rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from strobe.errors import InputError
from strobe.graph.ingest.batches import arrow_batches, cursor_batches, npz_batch
from strobe.graph.ingest.table import SourceTable, load_duckdb, stage_batches, unknown_types
from strobe.graph.ingest.text_table import TextOptions, open_text_table

if TYPE_CHECKING:
    from strobe.graph.ingest.table import Connection

_PARQUET = (".parquet", ".pq")


def open_tables(con: Connection, source: Any, options: TextOptions, wanted: Iterable[str | int]) -> list[SourceTable]:
    """Open the tables of a source: files by name, or an object that has rows."""
    wanted = list(wanted)
    listed = source if isinstance(source, list | tuple) else [source]
    if not listed:
        raise InputError("no source was given")
    return [_open_table(con, item, options, wanted) for item in listed]


def _open_table(con: Connection, source: Any, options: TextOptions, wanted: list[str | int]) -> SourceTable:
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.exists():
            raise InputError(f"there is no file {path}")
        if path.is_dir():
            raise InputError(f"{path} is a directory, not a table")
        if path.suffix in _PARQUET:
            return _open_parquet(con, path, wanted)
        if path.suffix == ".npz":
            return stage_batches(con, iter([npz_batch(path)]), str(path), wanted)
        return open_text_table(path, options, options.layout(path, wanted))
    if hasattr(source, "description") and hasattr(source, "fetchmany"):
        return stage_batches(con, cursor_batches(source), "the query", wanted)
    return stage_batches(con, arrow_batches(source), "the table", wanted)


def sql_path(path: Path) -> str:
    """Quote a path for SQL, without patterns."""
    return "'" + re.sub(r"([*?\[])", r"[\1]", str(path)).replace("'", "''") + "'"


def _open_parquet(con: Connection, path: Path, wanted: Sequence[str | int]) -> SourceTable:
    duckdb = load_duckdb()
    try:
        names = pyarrow.parquet.read_schema(path).names
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a Parquet file: {error}") from error
    types = unknown_types(str(path), names)
    chosen = SourceTable(str(path), types, "").positions(wanted)
    source = f"read_parquet({sql_path(path)}, file_row_number=true, hive_partitioning=false)"
    if len({name.lower() for name in names}) == len(names) and not any("\0" in name for name in names):
        selected = [f"{_quote_identifier(names[at])} AS c{at}" for at in chosen]
        sql = f"(SELECT {', '.join(selected)}, file_row_number + 1 AS place FROM {source})"
    else:  # DuckDB does not distinguish these names: columns go by position
        columns = ", ".join(f"c{at}" for at in range(len(names)))
        selected = [f"c{at}" for at in chosen]
        sql = f"(SELECT {', '.join(selected)}, number + 1 AS place FROM {source} AS t({columns}, number))"
    try:
        described = con.execute(f"DESCRIBE SELECT * FROM {sql}").fetchall()
    except duckdb.Error as error:
        raise InputError(f"{path} cannot be read as a Parquet file: {error}") from error
    types |= {names[at]: kind for at, (_, kind, *_) in zip(chosen, described[:-1], strict=True)}
    return SourceTable(str(path), types, sql)


def _quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
