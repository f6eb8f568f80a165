"""Sources of rows, brought into one form: a table DuckDB can read, whose rows have a place to point at."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from strobe.errors import InputError, OptionError, UnknownNameError
from strobe.graph.ingest import text
from strobe.graph.ingest.ahead import ahead
from strobe.graph.ingest.batches import BATCH_ROWS, arrow_batches, cursor_batches, npz_batch

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection

_PARQUET = (".parquet", ".pq")
PLACE = "the line of a text file's row"
"""The name of a first column that says where each row stands."""

_HEX = re.compile(rb"0[xX]")
_PARSED_AT_ONCE = 1 << 20
_ARROW = {"BIGINT": pa.int64(), "DOUBLE": pa.float64(), "VARCHAR": pa.string()}


@dataclass(frozen=True)
class TextOptions:
    """How text files are read; None is found out."""

    delimiter: str | None = None
    header: bool | None = None
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise OptionError(f"a delimiter is one character, not {self.delimiter!r}")
        try:
            plain = "\n".encode(self.encoding) == b"\n"
        except LookupError as error:
            raise OptionError(f"there is no encoding named {self.encoding!r}") from error
        if not plain:
            raise OptionError(f"lines cannot be told apart in {self.encoding}: convert the file to utf-8 first")

    def layout(self, path: Path, wanted: Iterable[str | int], span: text.Span = text.WHOLE) -> text.Layout:
        """How a file is laid out; it has a header if columns are wanted by name."""
        header = self.header if self.header is not None else any(isinstance(name, str) for name in wanted)
        return text.sniff(path, delimiter=self.delimiter, header=header, encoding=self.encoding, span=span)


@dataclass(frozen=True)
class Table:
    """Rows under a name: the types of its columns by their names, and SQL to read it from.

    There columns are called c0, c1, … in their order, because DuckDB does not tell A from a, and ``place`` is the
    number of a row's line or of the row itself. ``failures`` are what went wrong in reading a stream: DuckDB says no
    more than that something did.
    """

    name: str
    types: Mapping[str, str]
    sql: str
    unit: str = "row"
    failures: list[BaseException] = field(default_factory=list)

    def position(self, wanted: str | int) -> int:
        """Where a column given by name or position stands."""
        names = list(self.types)
        if isinstance(wanted, str):
            if wanted not in self.types:
                raise InputError(str(UnknownNameError(f"column in {self.name}", wanted, names)))
            return names.index(wanted)
        if not 0 <= wanted < len(names):
            raise InputError(f"{self.name} has {len(names)} columns, there is no column {wanted} (the first is 0)")
        return wanted

    def column(self, wanted: str | int) -> str:
        """The SQL name of a column."""
        return f"c{self.position(wanted)}"

    def type_of(self, wanted: str | int) -> str:
        """The DuckDB type of a column."""
        return list(self.types.values())[self.position(wanted)]

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
    span: text.Span = text.WHOLE

    def position(self, wanted: str | int) -> int:
        if len(self.types) == 1 and wanted not in self.types:
            raise InputError(f"{self.name} was read as one column: is {self.layout.delimiter!r} its delimiter?")
        return super().position(wanted)

    def samples(self, con: Connection, wanted: str | int, count: int = 1000) -> list[str]:
        at = self.position(wanted)
        read = islice(text.rows(self.path, self.layout, self.encoding, self.span), count)
        return [row.fields[at] for row in read if row.fields is not None]

    def quickly(self, con: Connection, kinds: Mapping[str | int, str]) -> Table | None:
        """A stream of typed columns. Arrow is strict: what is no number where one belongs ends the stream."""
        if self.encoding.lower() not in ("utf-8", "utf8"):
            return None
        chosen = {self.position(wanted): kind for wanted, kind in kinds.items()}
        schema = pa.schema([(f"c{at}", _ARROW[kind]) for at, kind in chosen.items()])
        stream = f"stream_{uuid4().hex}"
        failures: list[BaseException] = []
        batches = _watched(ahead(self._batches(schema)), failures)
        con.register(stream, pa.RecordBatchReader.from_batches(schema, batches))
        types = {name: chosen.get(at, kind) for at, (name, kind) in enumerate(self.types.items())}
        return Table(self.name, types, stream, self.unit, failures)

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Every block of lines is parsed by all cores; one that Arrow stumbles over is tidied and tried again."""
        for block in text.blocks(self.path, self.layout, self.span):
            self._refuse_open_quote(block)
            try:
                parsed = self._parsed(block, schema)
            except pa.ArrowInvalid:
                tidy = text.tidied(block.data, self.layout)
                parsed = self._parsed(block._replace(data=memoryview(tidy), num_lines=tidy.count(b"\n")), schema)
            if block.may_hold_hex and _HEX.search(block.data):
                raise pa.ArrowInvalid("Arrow takes 0x10 for a number")
            yield from parsed.to_batches()

    def _refuse_open_quote(self, block: text.Block) -> None:
        """A field that goes on in the next block would be cut in two, and Arrow would not say so."""
        if block.num_quotes % 2 and self.layout.delimiter != text.WHITESPACE:
            raise pa.ArrowInvalid("an odd number of quotes")

    def _parsed(self, block: text.Block, schema: pa.Schema) -> pa.Table:
        """The rows of a block, of which none may be lost."""
        blanks = self.layout.delimiter == text.WHITESPACE
        if not block.num_lines:
            return schema.empty_table()
        parsed = pyarrow.csv.read_csv(
            pa.BufferReader(block.data),
            pyarrow.csv.ReadOptions(
                column_names=[f"c{at}" for at in range(len(self.types))], block_size=_PARSED_AT_ONCE
            ),
            # Quoted fields may hold line ends, and must not be cut there; to heed that costs half the speed.
            pyarrow.csv.ParseOptions(
                delimiter=self.layout.delimiter,
                quote_char=False if blanks else '"',
                newlines_in_values=block.num_quotes > 0 and not blanks,
            ),
            pyarrow.csv.ConvertOptions(column_types=schema, include_columns=schema.names, null_values=[""]),
        )
        if parsed.num_rows != block.num_lines:
            raise pa.ArrowInvalid(f"{parsed.num_rows} rows in {block.num_lines} lines")
        return parsed

    def carefully(self, con: Connection) -> tuple[Table, list[text.Row]]:
        bad: list[text.Row] = []
        return replace(staged(con, self._placed(bad), self.name), unit="line"), bad

    def _placed(self, bad: list[text.Row]) -> Iterator[pa.RecordBatch]:
        """All columns as text, after a column with their lines; a batch without rows comes first.

        Arrow reads them as long as every line is a row; from the first block where it is not, Python does.
        """
        names = [f"c{at}" for at in range(len(self.types))]
        schema = pa.schema([(PLACE, pa.int64()), *((name, pa.string()) for name in self.types)])
        yield pa.RecordBatch.from_pylist([], schema=schema)
        line = self.span.lines + self.layout.skip
        if self.encoding.lower() in ("utf-8", "utf8"):
            for block in text.blocks(self.path, self.layout, self.span):
                try:
                    self._refuse_open_quote(block)
                    parsed = self._parsed(block, pa.schema([(name, pa.string()) for name in names]))
                except pa.ArrowInvalid:
                    break
                places = pa.array(np.arange(line + 1, line + 1 + parsed.num_rows))
                line += parsed.num_rows
                yield from pa.Table.from_arrays([places, *parsed.columns], schema=schema).to_batches()
            else:
                return
        rest = replace(self.layout, skip=line - self.span.lines)
        good = _good(text.rows(self.path, rest, self.encoding, self.span), bad)
        while chunk := list(islice(good, BATCH_ROWS)):
            columns = zip(*(row.fields for row in chunk if row.fields is not None), strict=True)
            arrays = [pa.array([row.line for row in chunk]), *(pa.array(column, pa.string()) for column in columns)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


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
        return _text(path, options, wanted)
    if hasattr(source, "description") and hasattr(source, "fetchmany"):
        return staged(con, cursor_batches(source), "the query")
    return staged(con, arrow_batches(source), "the table")


def _text(path: Path, options: TextOptions, wanted: list[str | int]) -> Table:
    return text_table(path, options, options.layout(path, wanted))


def text_table(path: Path, options: TextOptions, layout: text.Layout, span: text.Span = text.WHOLE) -> Table:
    """The rows of a text file, or of a stretch of it, whose layout is known."""
    types = dict.fromkeys(layout.columns, "VARCHAR")
    return TextFile(str(path), types, "", "line", path=path, layout=layout, encoding=options.encoding, span=span)


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
    return Table(str(path), _types(str(path), names, kinds[: len(names)]), sql)


def _watched(batches: Iterator[pa.RecordBatch], failures: list[BaseException]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except BaseException as error:
        failures.append(error)
        raise


def _good(read: Iterator[text.Row], bad: list[text.Row]) -> Iterator[text.Row]:
    for row in read:
        if row.fields is None:
            bad.append(row)
        else:
            yield row


def staged(con: Connection, batches: Iterator[pa.RecordBatch], name: str) -> Table:
    """Rows that can be read only once, kept in the database with their places: given as first column, or counted."""
    into, count, types = f"rows_{uuid4().hex}", 0, dict[str, str]()
    for batch in batches:
        names, columns = list(batch.schema.names), list(batch.columns)
        if names and names[0] == PLACE:
            places, names, columns = columns[0], names[1:], columns[1:]
        else:
            places = pa.array(np.arange(count + 1, count + len(batch) + 1))
        aliases = [f"c{at}" for at in range(len(columns))]
        con.register("incoming", pa.Table.from_arrays([places, *columns], names=["place", *aliases]))
        if not types:
            con.execute(f"CREATE TABLE {into} AS SELECT * FROM incoming")
            kinds = [kind for _, kind, *_ in con.execute(f"DESCRIBE {into}").fetchall()]
            types = _types(name, names, kinds[1:])
        else:
            for alias, column, (known, kind) in zip(aliases, columns, types.items(), strict=True):
                if pa.types.is_string(column.type) and kind != "VARCHAR":
                    con.execute(f"ALTER TABLE {into} ALTER {alias} TYPE VARCHAR")
                    types[known] = "VARCHAR"
            con.execute(f"INSERT INTO {into} SELECT * FROM incoming")
        con.unregister("incoming")
        count += len(batch)
    if not types:
        raise InputError(f"{name} has no columns and no rows")
    return Table(name, types, into)


def _types(name: str, names: list[str], kinds: list[str]) -> dict[str, str]:
    if twice := sorted({column for column in names if names.count(column) > 1}):
        raise InputError(f"{name} has two columns named {twice[0]!r}")
    return dict(zip(names, kinds, strict=True))
