"""Sources of rows, brought into one form: files by their names, or objects that hold rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from strobe.errors import InputError
from strobe.graph.ingest.batches import arrow_batches, cursor_batches, npz_batch
from strobe.graph.ingest.table import Table, staged, unknown_types
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
            return _parquet(con, path, wanted)
        if path.suffix == ".npz":
            return staged(con, iter([npz_batch(path)]), str(path), wanted)
        return text_table(path, options, options.layout(path, wanted))
    if hasattr(source, "description") and hasattr(source, "fetchmany"):
        return staged(con, cursor_batches(source), "the query", wanted)
    return staged(con, arrow_batches(source), "the table", wanted)


def this_path(path: Path) -> str:
    """A path as SQL reads it: none of it is a pattern."""
    return "'" + re.sub(r"([*?\[])", r"[\1]", str(path)).replace("'", "''") + "'"


def _parquet(con: Connection, path: Path, wanted: Sequence[str | int]) -> Table:
    import duckdb

    try:
        names = pyarrow.parquet.read_schema(path).names
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a Parquet file: {error}") from error
    types = unknown_types(str(path), names)
    chosen = Table(str(path), types, "").positions(wanted)
    source = f"read_parquet({this_path(path)}, file_row_number=true, hive_partitioning=false)"
    if len({name.lower() for name in names}) == len(names) and not any("\0" in name for name in names):
        picked = [f"{_quoted(names[at])} AS c{at}" for at in chosen]
        sql = f"(SELECT {', '.join(picked)}, file_row_number + 1 AS place FROM {source})"
    else:  # names that DuckDB does not tell apart: columns go by their order
        columns = ", ".join(f"c{at}" for at in range(len(names)))
        picked = [f"c{at}" for at in chosen]
        sql = f"(SELECT {', '.join(picked)}, number + 1 AS place FROM {source} AS t({columns}, number))"
    try:
        described = con.execute(f"DESCRIBE SELECT * FROM {sql}").fetchall()
    except duckdb.Error as error:
        raise InputError(f"{path} cannot be read as a Parquet file: {error}") from error
    types |= {names[at]: kind for at, (_, kind, *_) in zip(chosen, described[:-1], strict=True)}
    return Table(str(path), types, sql)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
