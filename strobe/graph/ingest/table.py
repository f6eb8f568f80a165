"""A table DuckDB can read, whose rows have a place that messages can name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import pyarrow as pa

from strobe.errors import InputError, UnknownNameError
from strobe.graph.ingest.records import Row

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection

PLACE = "the line of a text file's row"
"""The name of a first column that says where each row stands."""

UNKNOWN = ""
"""The type of a column that is not read."""


@dataclass
class ReadLog:
    """What happened while a table was read: comment lines, and exceptions in a stream, which DuckDB hides."""

    comment_lines: int = 0
    failures: list[BaseException] = field(default_factory=list)


@dataclass(frozen=True)
class Table:
    """Rows under a name: the types of its columns by their names, and SQL to read it from.

    There columns are called c0, c1, … in their order, because DuckDB does not tell A from a, and ``place`` is the
    number of a row's line or of the row itself. ``log`` is complete once the rows have been read.
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
        """Where a column given by name or position stands."""
        if isinstance(wanted, str):
            if wanted not in self._positions:
                raise InputError(str(UnknownNameError(f"column in {self.name}", wanted, list(self.types))))
            return self._positions[wanted]
        if not 0 <= wanted < len(self.types):
            raise InputError(f"{self.name} has {len(self.types)} columns, there is no column {wanted} (the first is 0)")
        return wanted

    def positions(self, wanted: Iterable[str | int]) -> list[int]:
        """Where columns stand, in ascending order, each once."""
        return sorted({self.position(column) for column in wanted})

    def column(self, wanted: str | int) -> str:
        """The SQL name of a column."""
        return f"c{self.position(wanted)}"

    def type_of(self, wanted: str | int) -> str:
        """The DuckDB type of a column."""
        return self._kinds[self.position(wanted)]

    def samples(self, con: Connection, wanted: str | int, count: int = 1000) -> list[str]:
        """Some values of a column as text, from the beginning."""
        column = self.column(wanted)
        query = f"SELECT CAST({column} AS VARCHAR) FROM {self.sql} WHERE {column} IS NOT NULL LIMIT {count}"
        with reading(self.name):
            return [value for (value,) in con.execute(query).fetchall()]

    def quickly(self, con: Connection, kinds: Mapping[str | int, str]) -> Table | None:
        """The table as it is read while all rows are good; None where there is no such way."""
        return self

    def carefully(self, con: Connection, wanted: Sequence[str | int]) -> tuple[Table, list[Row]]:
        """The table as it is read when a row is bad, at least its wanted columns, and rows that cannot be split."""
        return self, []


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn DuckDB's errors about a source into ``InputError``; those about memory, disk and interrupts stay."""
    import duckdb

    kept = (duckdb.OutOfMemoryException, duckdb.InterruptException)
    try:
        yield
    except duckdb.Error as error:
        if isinstance(error, kept) or "No space left" in str(error):
            raise
        raise InputError(f"{name} cannot be read: {error}") from error


def staged(
    con: Connection, batches: Iterator[pa.RecordBatch], name: str, wanted: Sequence[str | int] | None = None
) -> Table:
    """Rows that can be read only once, kept in the database: the wanted columns (None: all) and their places.

    The place of a row is its first column, where that is called ``PLACE``, else its number.
    """
    into, count, chosen, kinds = f"rows_{uuid4().hex}", 0, list[int](), dict[int, str]()
    types: dict[str, str] = {}
    for batch in batches:
        names, columns = list(batch.schema.names), list(batch.columns)
        if names and names[0] == PLACE:
            places, names, columns = columns[0], names[1:], columns[1:]
        else:
            places = pa.array(np.arange(count + 1, count + len(batch) + 1))
        if not types:
            types = unknown_types(name, names)
            chosen = list(range(len(names))) if wanted is None else Table(name, types, "").positions(wanted)
        picked = pa.Table.from_arrays(
            [places, *(columns[at] for at in chosen)], ["place", *(f"c{at}" for at in chosen)]
        )
        with reading(name):
            con.register("incoming", picked)
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
    return Table(name, {column: kinds.get(at, UNKNOWN) for at, column in enumerate(types)}, into)


def unknown_types(name: str, names: Sequence[str]) -> dict[str, str]:
    """Columns whose types are not known yet, of which no two may have the same name."""
    types = dict.fromkeys(names, UNKNOWN)
    if len(types) < len(names):
        [(twice, _)] = Counter(names).most_common(1)
        raise InputError(f"{name} has two columns named {twice!r}")
    return types
