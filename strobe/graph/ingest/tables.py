"""Sources of rows, brought into one form: a table DuckDB can read, whose rows have a place to point at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.csv

from strobe.errors import InputError, UnknownNameError
from strobe.graph.ingest import text
from strobe.graph.ingest.ahead import ahead

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection

_BATCH_ROWS = 100_000
_PARQUET = (".parquet", ".pq")
_PLACE = "strobe_place"
_PARSED_AT_ONCE = 1 << 20
_ARROW = {"BIGINT": pa.int64(), "DOUBLE": pa.float64(), "VARCHAR": pa.string()}


@dataclass(frozen=True)
class TextOptions:
    """How text files are read; None is found out."""

    delimiter: str | None = None
    header: bool | None = None
    encoding: str = "utf-8"


@dataclass(frozen=True)
class Table:
    """Rows under a name: SQL to read them from, column types, and the SQL of a row's place, here its number."""

    name: str
    types: Mapping[str, str]
    sql: str
    place: str
    unit: str = "row"

    def column(self, wanted: str | int) -> str:
        """The quoted SQL name of a column given by name or position."""
        return _quoted(self.column_name(wanted))

    def column_name(self, wanted: str | int) -> str:
        """The name of a column given by name or position."""
        names = list(self.types)
        if isinstance(wanted, str):
            if wanted not in self.types:
                raise InputError(str(UnknownNameError(f"column in {self.name}", wanted, names)))
            return wanted
        if not 0 <= wanted < len(names):
            raise InputError(f"{self.name} has {len(names)} columns, there is no column {wanted} (the first is 0)")
        return names[wanted]

    def type_of(self, wanted: str | int) -> str:
        """The DuckDB type of a column."""
        return self.types[self.column_name(wanted)]

    def samples(self, con: Connection, wanted: str | int, count: int = 1000) -> list[str]:
        """Some values of a column as text, from the beginning."""
        column = self.column(wanted)
        query = f"SELECT CAST({column} AS VARCHAR) FROM {self.sql} WHERE {column} IS NOT NULL LIMIT {count}"
        return [value for (value,) in con.execute(query).fetchall()]

    def quickly(self, con: Connection, kinds: Mapping[str | int, str]) -> Table | None:
        """The table as it is read while all is well; None where there is no such way."""
        return self

    def carefully(self, con: Connection) -> tuple[Table, list[text.Row]]:
        """The table as it is read when something is wrong, and rows that could not even be split."""
        return self, []


@dataclass(frozen=True)
class TextFile(Table):
    """A text file: read by Arrow while all is well, and line by line when something is wrong."""

    path: Path = Path()
    layout: text.Layout = field(default_factory=lambda: text.Layout("", [], 0))
    encoding: str = "utf-8"

    def column_name(self, wanted: str | int) -> str:
        if len(self.types) == 1 and wanted not in self.types:
            raise InputError(f"{self.name} was read as one column: is {self.layout.delimiter!r} its delimiter?")
        return super().column_name(wanted)

    def samples(self, con: Connection, wanted: str | int, count: int = 1000) -> list[str]:
        at = list(self.types).index(self.column_name(wanted))
        read = islice(text.rows(self.path, self.layout, self.encoding), count)
        return [row.fields[at] for row in read if row.fields is not None]

    def quickly(self, con: Connection, kinds: Mapping[str | int, str]) -> Table | None:
        """A stream of typed columns. Arrow is strict: what is no number where one belongs ends the stream."""
        if self.encoding.lower() not in ("utf-8", "utf8"):
            return None
        types = {self.column_name(wanted): kind for wanted, kind in kinds.items()}
        schema = pa.schema([(name, _ARROW[kind]) for name, kind in types.items()])
        stream = f"stream_{uuid4().hex}"
        con.register(stream, pa.RecordBatchReader.from_batches(schema, ahead(self._batches(schema))))
        return Table(self.name, {**self.types, **types}, stream, self.place, self.unit)

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Every block of lines is parsed by all cores. That no line is lost is not assumed."""
        read = pyarrow.csv.ReadOptions(column_names=self.layout.columns, block_size=_PARSED_AT_ONCE)
        parse = pyarrow.csv.ParseOptions(delimiter=self.layout.delimiter)
        convert = pyarrow.csv.ConvertOptions(column_types=schema, include_columns=schema.names, null_values=[""])
        for block, num_ends in text.blocks(self.path, self.layout):
            parsed = pyarrow.csv.read_csv(pa.BufferReader(block), read, parse, convert)
            if parsed.num_rows != num_ends and parsed.num_rows != text.count_lines(block):
                raise pa.ArrowInvalid(f"{parsed.num_rows} rows in {text.count_lines(block)} lines")
            yield from parsed.to_batches()

    def carefully(self, con: Connection) -> tuple[Table, list[text.Row]]:
        bad: list[text.Row] = []
        good = _good(text.rows(self.path, self.layout, self.encoding), bad)
        staged = _stage(con, _text_batches(good, [_PLACE, *self.types]), self.name)
        return replace(staged, unit="line"), bad


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
            return _stage(con, iter([_npz(path)]), str(path))
        return _text(path, options, wanted)
    if hasattr(source, "description") and hasattr(source, "fetchmany"):
        return _stage(con, _cursor_batches(source), "the query")
    return _stage(con, _arrow_batches(source), "the table")


def _text(path: Path, options: TextOptions, wanted: list[str | int]) -> Table:
    header = options.header if options.header is not None else any(isinstance(name, str) for name in wanted)
    layout = text.sniff(path, delimiter=options.delimiter, header=header, encoding=options.encoding)
    types = dict.fromkeys(layout.columns, "VARCHAR")
    return TextFile(str(path), types, "", "", "line", path, layout, options.encoding)


def _parquet(con: Connection, path: Path) -> Table:
    import duckdb

    sql = f"read_parquet({_literal(str(path))}, file_row_number=true)"
    try:
        described = con.execute(f"DESCRIBE SELECT * FROM {sql}").fetchall()
    except duckdb.Error as error:
        raise InputError(f"{path} cannot be read as a Parquet file: {error}") from error
    types = {name: kind for name, kind, *_ in described if name != "file_row_number"}
    return Table(str(path), types, sql, "file_row_number + 1")


def _npz(path: Path) -> pa.RecordBatch:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:  # numpy raises half a dozen kinds for a damaged archive
        raise InputError(f"{path} cannot be read as an NPZ file: {error}") from error
    columns = {name: array for name, array in arrays.items() if array.ndim == 1}
    longest = max((array.size for array in columns.values()), default=0)
    same = {name: array for name, array in columns.items() if array.size == longest}
    return pa.RecordBatch.from_arrays([pa.array(array) for array in same.values()], names=list(same))


def _arrow_batches(source: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(source, Mapping):
        source = pa.table({name: np.asarray(values) for name, values in source.items()})
    elif hasattr(source, "__dataframe__") and not hasattr(source, "__arrow_c_stream__"):
        source = pa.Table.from_pandas(source, preserve_index=False)
    if not hasattr(source, "__arrow_c_stream__"):
        raise InputError(
            f"cannot read rows from {type(source).__name__}: give a file, an Arrow table or stream, "
            "a data frame, a mapping of arrays, or a DB-API cursor whose query has been executed"
        )
    reader = pa.RecordBatchReader.from_stream(source)
    empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in reader.schema], schema=reader.schema)
    yield empty  # a table without rows has columns all the same
    yield from reader


def _cursor_batches(cursor: Any) -> Iterator[pa.RecordBatch]:
    if cursor.description is None:
        raise InputError("this cursor has no result: execute a query that selects rows first")
    names = [column[0] for column in cursor.description]
    cursor.arraysize = _BATCH_ROWS
    schema: pa.Schema | None = None
    while fetched := cursor.fetchmany(_BATCH_ROWS):
        values = [list(column) for column in zip(*fetched, strict=True)]
        batch = _batch(values, names, schema)
        schema = batch.schema
        yield batch
    if schema is None:
        yield pa.RecordBatch.from_arrays([pa.array([], pa.string()) for _ in names], names=names)


def _batch(values: list[list[Any]], names: list[str], schema: pa.Schema | None) -> pa.RecordBatch:
    """A batch of database rows; a column that mixes types is read as text, and checked as text."""
    arrays = []
    for k, column in enumerate(values):
        try:
            arrays.append(pa.array(column, type=None if schema is None else schema.field(k).type))
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            arrays.append(pa.array([None if value is None else str(value) for value in column], pa.string()))
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _good(read: Iterator[text.Row], bad: list[text.Row]) -> Iterator[text.Row]:
    for row in read:
        if row.fields is None:
            bad.append(row)
        else:
            yield row


def _text_batches(good: Iterator[text.Row], names: list[str]) -> Iterator[pa.RecordBatch]:
    empty = True
    while chunk := list(islice(good, _BATCH_ROWS)):
        empty = False
        columns = zip(*(row.fields for row in chunk if row.fields is not None), strict=True)
        arrays = [pa.array([row.line for row in chunk]), *(pa.array(column, pa.string()) for column in columns)]
        yield pa.RecordBatch.from_arrays(arrays, names=names)
    if empty:
        kinds = [pa.int64(), *([pa.string()] * (len(names) - 1))]
        yield pa.RecordBatch.from_arrays([pa.array([], kind) for kind in kinds], names=names)


def _stage(con: Connection, batches: Iterator[pa.RecordBatch], name: str) -> Table:
    """Rows that can be read only once, kept in the database with their numbers."""
    staged, count, types = f"rows_{uuid4().hex}", 0, dict[str, str]()
    for batch in batches:
        numbered = batch
        if _PLACE not in batch.schema.names:
            places = pa.array(np.arange(count + 1, count + len(batch) + 1))
            numbered = pa.RecordBatch.from_arrays([places, *batch.columns], names=[_PLACE, *batch.schema.names])
        con.register("incoming", pa.Table.from_batches([numbered]))
        if not types:
            con.execute(f"CREATE TABLE {staged} AS SELECT * FROM incoming")
            types = {column: kind for column, kind, *_ in con.execute(f"DESCRIBE {staged}").fetchall()}
        else:
            for column in numbered.schema:
                if pa.types.is_string(column.type) and types[column.name] != "VARCHAR":
                    con.execute(
                        f"ALTER TABLE {staged} ALTER {Table(name, types, '', '').column(column.name)} TYPE VARCHAR"
                    )
                    types[column.name] = "VARCHAR"
            con.execute(f"INSERT INTO {staged} SELECT * FROM incoming")
        con.unregister("incoming")
        count += len(batch)
    if not types:
        raise InputError(f"{name} has no columns and no rows")
    types.pop(_PLACE, None)
    return Table(name, types, staged, _PLACE)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
