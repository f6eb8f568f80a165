"""Files that list nodes or pairs of nodes, by name or id: CSV or Parquet."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from strobe.errors import BadRowsError, InputError, OptionError, UnknownNameError
from strobe.graph import DynamicGraph
from strobe.graph.ingest.rejects import BadRow
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
