"""A table that DuckDB can read, whose rows have a position for messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

import numpy as np

from strobe.errors import InputError, MissingPackageError, UnknownNameError
from strobe.graph.ingest.records import Row
from strobe.io.lazy_import import lazy_import

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection
    import pyarrow as pa
else:
    pa = lazy_import("pyarrow")

Item = TypeVar("Item")

BATCH_ROWS = 100_000
"""Rows that are fetched from a cursor, or parsed in Python, at once."""

_END: Final = object()

LINE_COLUMN = "the line of a text file's row"
"""Name of a first column that has the position of each row."""

UNKNOWN_TYPE = ""
"""Type of a column that is not read."""


def prefetch(items: Iterator[Item]) -> Iterator[Item]:
    """Iterate with the next item prefetched in a thread; its exceptions are raised here."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, _END)
        while (item := coming.result()) is not _END:
            coming = thread.submit(next, items, _END)
            yield item  # type: ignore[misc]


@dataclass
class ReadLog:
    """Log of reading a table: comment lines, and exceptions in a stream, which DuckDB hides."""

    comment_lines: int = 0
    failures: list[BaseException] = field(default_factory=list)


@dataclass(frozen=True)
class SourceTable:
    """A named table: types of its columns by name, and the SQL to read it.

    SQL columns are c0, c1, … by position, because DuckDB does not distinguish A from a; ``place`` is the number of a
    row's line or of the row itself. ``log`` is complete once the rows have been read.
    """

    name: str
    types: Mapping[str, str]
    sql: str
    unit: str = "row"
    log: ReadLog = field(default_factory=ReadLog)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.types)}

    @cached_property
    def _kinds(self) -> list[str]:
        return list(self.types.values())

    def position(self, wanted: str | int) -> int:
        """Return the position of a column given by name or position."""
        if isinstance(wanted, str):
            if wanted not in self._positions:
                raise InputError(str(UnknownNameError(f"column in {self.name}", wanted, list(self.types))))
            return self._positions[wanted]
        if not 0 <= wanted < len(self.types):
            raise InputError(f"{self.name} has {len(self.types)} columns, there is no column {wanted} (the first is 0)")
        return wanted

    def positions(self, wanted: Iterable[str | int]) -> list[int]:
        """Return the distinct positions of columns, ascending."""
        return sorted({self.position(column) for column in wanted})

    def column(self, wanted: str | int) -> str:
        """Return the SQL name of a column."""
        return f"c{self.position(wanted)}"

    def type_of(self, wanted: str | int) -> str:
        """Return the DuckDB type of a column."""
        return self._kinds[self.position(wanted)]

    def samples(self, con: Connection, wanted: str | int, count: int = 1000) -> list[str]:
        """Return the first values of a column as text."""
        column = self.column(wanted)
        query = f"SELECT CAST({column} AS VARCHAR) FROM {self.sql} WHERE {column} IS NOT NULL LIMIT {count}"
        with duckdb_errors_as_input_errors(self.name):
            return [value for (value,) in con.execute(query).fetchall()]

    def read_fast(self, con: Connection, kinds: Mapping[str | int, str]) -> SourceTable | None:
        """Return the fast path to the table, valid while all rows are good; None if there is none."""
        return self

    def read_with_lines(self, con: Connection, wanted: Sequence[str | int]) -> tuple[SourceTable, list[Row]]:
        """Return the slow path for bad rows: at least the wanted columns, and rows that cannot be split."""
        return self, []


def load_duckdb() -> Any:
    """Import duckdb, which takes long, when the first table is read.

    Raises:
        MissingPackageError: duckdb is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        raise MissingPackageError("duckdb", "reading tables") from error
    return duckdb


@contextmanager
def duckdb_errors_as_input_errors(name: str) -> Iterator[None]:
    """Turn DuckDB's errors about a source into ``InputError``; keep those about memory, disk and interrupts."""
    duckdb = load_duckdb()
    passed_on = (duckdb.OutOfMemoryException, duckdb.InterruptException)
    try:
        yield
    except duckdb.Error as error:
        if isinstance(error, passed_on) or "No space left" in str(error):
            raise
        raise InputError(f"{name} cannot be read: {error}") from error


def stage_batches(
    con: Connection, batches: Iterator[pa.RecordBatch], name: str, wanted: Sequence[str | int] | None = None
) -> SourceTable:
    """Load rows that can be read only once into the database: wanted columns (None: all) and positions.

    The position of a row is its first column if that is called ``LINE_COLUMN``, otherwise its number.
    """
    into, count, chosen, kinds = f"rows_{uuid4().hex}", 0, list[int](), dict[int, str]()
    types: dict[str, str] = {}
    for batch in batches:
        names, columns = list(batch.schema.names), list(batch.columns)
        if names and names[0] == LINE_COLUMN:
            places, names, columns = columns[0], names[1:], columns[1:]
        else:
            places = pa.array(np.arange(count + 1, count + len(batch) + 1))
        if not types:
            types = unknown_types(name, names)
            chosen = list(range(len(names))) if wanted is None else SourceTable(name, types, "").positions(wanted)
        table = pa.Table.from_arrays([places, *(columns[at] for at in chosen)], ["place", *(f"c{at}" for at in chosen)])
        with duckdb_errors_as_input_errors(name):
            con.register("incoming", table)
            if not kinds:
                con.execute(f"CREATE TABLE {into} AS SELECT * FROM incoming")
                described = con.execute(f"DESCRIBE {into}").fetchall()
                kinds = {at: kind for at, (_, kind, *_) in zip(chosen, described[1:], strict=True)}
            else:
                for at in chosen:
                    if pa.types.is_string(columns[at].type) and kinds[at] != "VARCHAR":
                        con.execute(f"ALTER TABLE {into} ALTER c{at} TYPE VARCHAR")
                        kinds[at] = "VARCHAR"
                con.execute(f"INSERT INTO {into} SELECT * FROM incoming")
            con.unregister("incoming")
        count += len(batch)
    if not types:
        raise InputError(f"{name} has no columns and no rows")
    return SourceTable(name, {column: kinds.get(at, UNKNOWN_TYPE) for at, column in enumerate(types)}, into)


def unknown_types(name: str, names: Sequence[str]) -> dict[str, str]:
    """Return columns of unknown types; refuse duplicate names."""
    types = dict.fromkeys(names, UNKNOWN_TYPE)
    if len(types) < len(names):
        [(twice, _)] = Counter(names).most_common(1)
        raise InputError(f"{name} has two columns named {twice!r}")
    return types
