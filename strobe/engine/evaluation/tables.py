"""Tables of nodes: files that list nodes or pairs of nodes, and predictions, written table by table."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import parquet
from torch import Tensor

from strobe.errors import BadRowsError, InputError, OptionError, UnknownNameError
from strobe.graph import DynamicGraph
from strobe.graph.ingest.rejects import BadRow
from strobe.io.atomic import write_atomic
from strobe.ops.dense.bf16 import BF16
from strobe.ops.sparse.csr import IntArray

MAX_SHOWN = 10
"""Bad rows that a message shows."""

PAIR = ("source", "destination")
NODE = ("node",)
SYNONYMS = {"source": ("source", "src"), "destination": ("destination", "dst", "target")}
"""Names that columns may have in a file."""


@dataclass(frozen=True, eq=False)
class NodeRows:
    """Rows of a file as node ids, [columns, n], and its bad rows."""

    nodes: IntArray
    bad: list[BadRow]

    def describe_bad(self) -> str:
        """The first bad rows with file, line and reason, one per line."""
        more = f"\n  … and {len(self.bad) - MAX_SHOWN:,} more" if len(self.bad) > MAX_SHOWN else ""
        return "\n".join(f"  {row}" for row in self.bad[:MAX_SHOWN]) + more


def read_node_rows(graph: DynamicGraph, path: Path, columns: Sequence[str], *, skip_bad_rows: bool = False) -> NodeRows:
    """Read rows of nodes by name or, in a graph without names, by id.

    A Parquet file has the columns by name. The first line of a CSV file may be a header with these names, in any order
    and among other columns; without one its first columns are read. ``SYNONYMS`` lists other names of a column. If the
    graph has names, a column that ends in ``_name`` comes first: tables of predictions have ids and names.

    Args:
        graph: the graph.
        path: ending in .csv or .parquet.
        columns: ``PAIR`` or ``NODE``. A pair of a node with itself is a bad row.
        skip_bad_rows: leave bad rows out.

    Returns:
        The rows.

    Raises:
        BadRowsError: there are bad rows, each named with file, line and reason, or no good ones.
        InputError: the file cannot be read.
    """
    rows = _readers(path)(path, {column: _accepted_names(column, graph) for column in columns})
    lookup = _Lookup(graph)
    good: list[list[int]] = []
    bad: list[BadRow] = []
    for unit, place, values in rows:
        found: list[int] = []
        reason = None if len(values) >= len(columns) else f"{len(values)} of {len(columns)} columns are there"
        for column, value in zip(columns, values, strict=False) if reason is None else ():
            try:
                found.append(lookup.find(value))
            except (UnknownNameError, InputError) as error:
                header = f" (a header would be {','.join(columns)})" if (unit, place) == ("line", 1) else ""
                bad.append(BadRow(str(path), unit, place, column, _shown(value), f"is no node: {error}{header}"))
                break
        else:
            if reason is None and len(found) == 2 and found[0] == found[1]:
                reason = "a node is paired with itself: the task has no such edges"
            if reason is None:
                good.append(found)
            else:
                bad.append(BadRow(str(path), unit, place, "", "", reason))
    read = NodeRows(np.array(good, np.int64).reshape(-1, len(columns)).T, bad)
    if bad and (not skip_bad_rows or not good):
        count = f"{len(bad):,} bad {'row' if len(bad) == 1 else 'rows'}"
        advice = "Mend the file, or leave them out with --skip-bad-rows." if good else "No row is good: mend the file."
        raise BadRowsError(f"{count}; nothing was written:\n{read.describe_bad()}\n{advice}")
    if not good:
        raise InputError(f"{path} has no rows: give {' and '.join(columns)}")
    return read


def _accepted_names(column: str, graph: DynamicGraph) -> tuple[str, ...]:
    """Names of a column in a file, the preferred one first."""
    names = SYNONYMS.get(column, (column,))
    return names if graph.names is None else (*(f"{name}_name" for name in names), *names)


def _find_columns(header: Sequence[str], columns: _Columns) -> dict[str, int]:
    """The position of each column that a header has, by the first of its names that is there."""
    places = {column: [header.index(name) for name in names if name in header] for column, names in columns.items()}
    return {column: found[0] for column, found in places.items() if found}


class _Lookup:
    """Node ids by name or, without names, by id."""

    def __init__(self, graph: DynamicGraph) -> None:
        self._graph = graph
        self._known: dict[Any, int] = {}

    def find(self, value: Any) -> int:
        if value not in self._known:
            self._known[value] = self._find(value)
        return self._known[value]

    def _find(self, value: Any) -> int:
        if value is None or value == "":
            raise InputError("the value is missing")
        if self._graph.names is not None:
            return self._graph.names.find(value)
        try:
            node = int(value)
        except (TypeError, ValueError):
            node = -1
        if not 0 <= node < self._graph.num_nodes:
            raise InputError(f"the graph has no names, and nodes 0 to {self._graph.num_nodes - 1}")
        return node


def find_nodes(graph: DynamicGraph, names: Sequence[str]) -> list[int]:
    """Node ids by name or, in a graph without names, by id.

    Raises:
        StrobeError: there is no such node.
    """
    lookup = _Lookup(graph)
    return [lookup.find(name) for name in names]


_Row = tuple[str, int, Sequence[Any]]
_Columns = Mapping[str, Sequence[str]]
"""Columns with their names in a file."""


def _read_csv(path: Path, columns: _Columns) -> Iterator[_Row]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            chosen: list[int] | None = None
            for values in reader:
                if not values:
                    continue
                if chosen is None:
                    chosen = list(_find_columns([value.strip().lower() for value in values], columns).values())
                    if len(chosen) == len(columns):
                        continue
                    chosen = list(range(len(columns)))
                yield "line", reader.line_num, [values[k].strip() for k in chosen if k < len(values)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _read_parquet(path: Path, columns: _Columns) -> Iterator[_Row]:
    try:
        table = parquet.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    chosen = _find_columns(table.column_names, columns)
    for column in columns:
        if column not in chosen:
            raise UnknownNameError(f"column of {path}", column, table.column_names)
    rows = zip(*(table.column(place).to_pylist() for place in chosen.values()), strict=True)
    for number, values in enumerate(rows, 1):
        yield "row", number, values


_READERS = {".csv": _read_csv, ".parquet": _read_parquet}


def _readers(path: Path) -> Any:
    ending = path.suffix.lower()
    if ending not in _READERS:
        raise OptionError(f"cannot tell from its name what {path} is: end it in {' or '.join(_READERS)}")
    return _READERS[ending]


def _shown(value: Any) -> str:
    return "" if value is None else str(value)


_MONTH = np.dtype("datetime64[M]")


@dataclass(frozen=True)
class WrittenTable:
    """Predictions that are in a file: how many rows, and the first table's."""

    rows: int
    first: pa.Table


def write_tables(path: str | PathLike[str], tables: Iterator[pa.Table], nothing: OptionError) -> WrittenTable:
    """Write tables of one schema to a file whose suffix says its format; raise ``nothing`` where there are none."""
    open_table = opener(path)
    written: WrittenTable | None = None

    def write(file: BinaryIO) -> None:
        nonlocal written
        first = next(tables, None)
        if first is None:
            raise nothing
        rows = 0
        with open_table(file, first.schema) as writer:
            for table in chain([first], tables):
                writer.write_table(table)
                rows += table.num_rows
        written = WrittenTable(rows, first)

    write_atomic(Path(path), write)
    assert written is not None
    return written


def node_columns(graph: DynamicGraph, nodes: Mapping[str, IntArray]) -> dict[str, Any]:
    """Columns of node ids by name and, where the graph has them, of their names: ``name`` for ``node``,
    ``source_name`` for ``source``."""
    found: dict[str, Any] = {}
    for column, ids in nodes.items():
        found[column] = ids
        if graph.names is not None:
            found["name" if column == "node" else f"{column}_name"] = _names(graph)(ids)
    return found


def time_columns(graph: DynamicGraph, t: int, ahead: int, size: int) -> dict[str, Any]:
    """``t`` and ``read_time``: number and time of the snapshot read; ``time``: when the predicted snapshot is, null if
    it is after the last one and snapshots are not equally far apart."""
    kind = pa.int64() if all(isinstance(time, int) for time in graph.times) else pa.string()
    return {
        "t": np.full(size, t, np.int32),
        "read_time": pa.repeat(pa.scalar(time_of(graph, t), kind), size),
        "time": pa.repeat(pa.scalar(time_of(graph, t + ahead), kind), size),
    }


def time_of(graph: DynamicGraph, t: int) -> int | str | None:
    """When snapshot t is, also beyond the last one if all snapshots are equally far apart, in days, seconds, or months.

    Text for all snapshots where it is for one, because a column has one type.

    Returns:
        The time; None if it cannot be known.
    """
    is_text = not all(isinstance(time, int) for time in graph.times)
    if t < len(graph):
        return str(graph.times[t]) if is_text else graph.times[t]
    if len(graph) < 2:
        return None
    if not is_text:
        numbers = np.array(graph.times)
        found = _continue(numbers, t)
        return None if found is None else int(found)
    try:
        dates = np.array([str(time) for time in graph.times], np.datetime64)
    except ValueError:
        return None
    found = _continue(dates, t)
    if found is None and dates.dtype != _MONTH and (dates == dates.astype(_MONTH)).all():
        month = _continue(dates.astype(_MONTH), t)
        found = None if month is None else np.asarray(month).astype(dates.dtype)[()]
    return None if found is None else str(found)


def _continue(times: npt.NDArray[Any], t: int) -> Any:
    """Element t of times whose differences are all equal; None if they are not."""
    steps = np.diff(times)
    if (steps != steps[0]).any():
        return None
    return times[-1] + steps[0] * (t - len(times) + 1)


def embedding_column(z: Tensor, rows: IntArray) -> pa.Array:
    """Rows of embeddings as a column of lists."""
    values = (z.float() if z.dtype == BF16 else z).cpu().numpy()[rows]
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def _names(graph: DynamicGraph) -> Callable[[Any], Any]:
    """The names of nodes as an Arrow column, taken from the stored bytes without making Python strings of them."""
    assert graph.names is not None
    stored = graph.names.arrays()
    if "name_int" in stored:
        return lambda nodes: stored["name_int"][nodes]
    ptr = np.ascontiguousarray(stored["name_ptr"], np.int64)
    held = pa.LargeStringArray.from_buffers(len(ptr) - 1, pa.py_buffer(ptr), pa.py_buffer(stored["name_text"]))
    return lambda nodes: held.take(pa.array(nodes))


class TableWriter(AbstractContextManager[Any], Protocol):
    """Appends tables of one schema to a file; leaving it completes the file."""

    def write_table(self, table: pa.Table) -> None:
        """Appends a table's rows."""
        ...


OpenTable = Callable[[BinaryIO, pa.Schema], TableWriter]


def opener(path: str | PathLike[str]) -> OpenTable:
    """What begins a file of this name: Parquet, a row group per table, or CSV, where a list is a column per item.

    Refuses other names.
    """
    ending = Path(path).suffix.lower()
    if ending not in _OPENERS:
        raise OptionError(f"cannot tell from its name what {path} should be: end it in {' or '.join(_OPENERS)}")
    return _OPENERS[ending]


def _parquet(file: BinaryIO, schema: pa.Schema) -> TableWriter:
    return parquet.ParquetWriter(file, schema)  # type: ignore[no-any-return]


class _Csv:
    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._writer = arrow_csv.CSVWriter(file, _flat(schema.empty_table()).schema)

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(_flat(table))

    def __enter__(self) -> _Csv:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()


def _flat(table: pa.Table) -> pa.Table:
    """Lists as columns of their items, numbered from 0."""
    found: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not pa.types.is_fixed_size_list(column.type):
            found[name] = column
            continue
        width = column.type.list_size
        items = column.combine_chunks().flatten().to_numpy().reshape(-1, width)
        found |= {f"{name}_{k}": items[:, k] for k in range(width)}
    return pa.table(found)


_OPENERS: dict[str, OpenTable] = {".parquet": _parquet, ".csv": _Csv}
