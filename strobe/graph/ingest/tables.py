"""Sources of rows, brought into one form: files by their names, or objects that hold rows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from strobe.errors import InputError
from strobe.graph.ingest.batches import arrow_batches, cursor_batches, npz_batch
from strobe.graph.ingest.table import Table, named_types, staged
from strobe.graph.ingest.text_table import TextOptions, text_table

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection

_PARQUET = (".parquet", ".pq")


def tables(con: Connection, source: Any, options: TextOptions, wanted: Iterable[str | int]) -> list[Table]:
    """The tables of a source: files by their names, or an object that holds rows."""
    wanted = list(wanted)
    listed = source if isinstance(source, list | tuple) else [source]
    if not listed:
        raise InputError("no source was given")
    return [_table(con, item, options, wanted) for item in listed]


def _table(con: Connection, source: Any, options: TextOptions, wanted: list[str | int]) -> Table:
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.exists():
            raise InputError(f"there is no file {path}")
        if path.is_dir():
            raise InputError(f"{path} is a directory, not a table")
        if path.suffix in _PARQUET:
            return _parquet(con, path)
        if path.suffix == ".npz":
            return staged(con, iter([npz_batch(path)]), str(path))
        return text_table(path, options, options.layout(path, wanted))
    if hasattr(source, "description") and hasattr(source, "fetchmany"):
        return staged(con, cursor_batches(source), "the query")
    return staged(con, arrow_batches(source), "the table")


def this_path(path: Path) -> str:
    """A path as SQL reads it: none of it is a pattern."""
    return "'" + re.sub(r"([*?\[])", r"[\1]", str(path)).replace("'", "''") + "'"


def _parquet(con: Connection, path: Path) -> Table:
    import duckdb

    source = f"read_parquet({this_path(path)}, file_row_number=true, hive_partitioning=false)"
    try:
        names = pyarrow.parquet.read_schema(path).names
        described = con.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as a Parquet file: {error}") from error
    columns = ", ".join(f"c{at}" for at in range(len(names)))
    sql = f"(SELECT {columns}, number + 1 AS place FROM {source} AS t({columns}, number))"
    kinds = [kind for _, kind, *_ in described]
    return Table(str(path), named_types(str(path), names, kinds[: len(names)]), sql)
