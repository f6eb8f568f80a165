"""Tables of predictions: columns of nodes and times, and files that are written table by table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv, parquet
from torch import Tensor

from strobe.errors import OptionError
from strobe.graph import DynamicGraph
from strobe.io.atomic import write_atomic
from strobe.ops.dense.bf16 import BF16
from strobe.ops.sparse.csr import IntArray

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
        self._writer = csv.CSVWriter(file, _flat(schema.empty_table()).schema)

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
