"""Sources of rows: files by name, or objects that have rows, read as Arrow batches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from strobe.errors import InputError
from strobe.graph.arrays import Array, as_array
from strobe.graph.ingest.table import BATCH_ROWS, SourceTable, load_duckdb, stage_batches, unknown_types
from strobe.graph.ingest.text_table import TextOptions, open_text_table
from strobe.io.lazy_import import lazy_import

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

    from strobe.graph.ingest.table import Connection
else:
    pa = lazy_import("pyarrow")
    parquet = lazy_import("pyarrow.parquet")

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
            return stage_batches(con, iter([_npz_batch(path)]), str(path), wanted)
        return open_text_table(path, options, options.layout(path, wanted))
    if hasattr(source, "description") and hasattr(source, "fetchmany"):
        return stage_batches(con, cursor_batches(source), "the query", wanted)
    return stage_batches(con, _arrow_batches(source), "the table", wanted)


def sql_path(path: Path) -> str:
    """Quote a path for SQL, without patterns."""
    return "'" + re.sub(r"([*?\[])", r"[\1]", str(path)).replace("'", "''") + "'"


def _open_parquet(con: Connection, path: Path, wanted: Sequence[str | int]) -> SourceTable:
    duckdb = load_duckdb()
    try:
        names = parquet.read_schema(path).names
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


def _npz_batch(path: Path) -> pa.RecordBatch:
    """Return the longest one-dimensional arrays of an NPZ file, as columns."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:  # numpy raises many kinds of errors for a damaged archive
        raise InputError(f"{path} cannot be read as an NPZ file: {error}") from error
    columns = {name: array for name, array in arrays.items() if array.ndim == 1}
    longest = max((array.size for array in columns.values()), default=0)
    same = {name: array for name, array in columns.items() if array.size == longest and array.dtype.kind in "biufUM"}
    if not same:
        raise InputError(f"{path} holds no one-dimensional array of numbers, dates or text")
    arrow = [_arrow_column(array, f"{path}, array {name!r}") for name, array in same.items()]
    return pa.RecordBatch.from_arrays(arrow, names=list(same))


def _arrow_column(array: Array, what: str) -> pa.Array:
    """Convert an array for Arrow and DuckDB: native byte order, half floats to floats, dates to microseconds."""
    array = as_array(array, what)
    if array.dtype.kind == "M":
        array = _in_microseconds(array, what)
    elif array.dtype.kind == "f" and array.dtype.itemsize not in (4, 8):
        array = array.astype(np.float32 if array.dtype.itemsize < 4 else np.float64)
    try:
        return pa.array(array)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"{what} cannot be read: {error}") from error


def _in_microseconds(dates: Array, what: str) -> Array:
    """Convert dates of any unit, rounded down; refuse dates outside the years 1 to 9999."""
    unit, _ = np.datetime_data(dates.dtype)
    if unit == "generic":
        raise InputError(f"{what} holds dates without a unit")
    valid = dates[~np.isnat(dates)]
    if valid.size and unit not in ("ps", "fs", "as"):  # which cover only a few months around 1970
        low, high = valid.min(), valid.max()
        if low.astype("M8[Y]") < np.datetime64("0001") or high.astype("M8[Y]") > np.datetime64("9999"):
            raise InputError(f"{what} holds dates outside the years 1 to 9999, from {low} to {high}")
    return dates.astype("M8[us]")


def _arrow_batches(source: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an Arrow table or stream, a data frame, or a mapping of arrays; at least one batch."""
    if isinstance(source, Mapping):
        try:
            source = pa.table({str(name): _column_of_mapping(name, values) for name, values in source.items()})
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise InputError(f"these arrays do not make a table: {error}") from error
    elif hasattr(source, "__dataframe__") and not hasattr(source, "__arrow_c_stream__"):
        source = pa.Table.from_pandas(source, preserve_index=False)
    if not hasattr(source, "__arrow_c_stream__"):
        raise InputError(
            f"cannot read rows from {type(source).__name__}: give a file, an Arrow table or stream, "
            "a data frame, a mapping of arrays, or a DB-API cursor whose query has been executed"
        )
    try:
        reader = pa.RecordBatchReader.from_stream(source)
        empty = True
        for batch in reader:
            yield pa.RecordBatch.from_arrays(
                [_as_duckdb_type(column) for column in batch.columns], names=batch.schema.names
            )
            empty = False
        if empty:  # a table without rows has columns, too
            columns = [_as_duckdb_type(pa.nulls(0, field.type)) for field in reader.schema]
            yield pa.RecordBatch.from_arrays(columns, names=reader.schema.names)
    except (pa.ArrowException, OverflowError, TypeError, ValueError, OSError) as error:
        raise InputError(f"the rows of this {type(source).__name__} cannot be read: {error}") from error


def _as_duckdb_type(column: pa.Array) -> pa.Array:
    """Convert a column to a type that DuckDB has: half floats to floats."""
    return column.cast(pa.float32()) if pa.types.is_float16(column.type) else column


def _column_of_mapping(name: object, values: Any) -> pa.Array:
    array = np.asarray(values)
    if array.dtype.kind in "OSUV" or array.ndim != 1:
        return pa.array(array)
    return _arrow_column(array, f"column {name!r}")


def cursor_batches(cursor: Any) -> Iterator[pa.RecordBatch]:
    """Yield the result of a query that a DB-API cursor has executed."""
    if cursor.description is None:
        raise InputError("this cursor has no result: execute a query that selects rows first")
    names = [column[0] for column in cursor.description]
    cursor.arraysize = BATCH_ROWS
    schema: pa.Schema | None = None
    while fetched := cursor.fetchmany(BATCH_ROWS):
        values = [list(column) for column in zip(*fetched, strict=True)]
        batch = _rows_to_batch(values, names, schema)
        schema = batch.schema
        yield batch
    if schema is None:
        yield pa.RecordBatch.from_arrays([pa.array([], pa.string()) for _ in names], names=names)


def _rows_to_batch(values: list[list[Any]], names: list[str], schema: pa.Schema | None) -> pa.RecordBatch:
    """Convert database rows to a batch; a column of mixed types is read and checked as text."""
    arrays = []
    for k, column in enumerate(values):
        try:
            arrays.append(pa.array(column, type=None if schema is None else schema.field(k).type))
        except (pa.ArrowException, OverflowError):
            arrays.append(pa.array([None if value is None else str(value) for value in column], pa.string()))
    return pa.RecordBatch.from_arrays(arrays, names=names)
