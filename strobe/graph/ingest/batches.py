"""Rows that can be read only once, as Arrow batches: of arrays, data frames and databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from strobe.errors import InputError

BATCH_ROWS = 100_000


def npz_batch(path: Path) -> pa.RecordBatch:
    """The longest one-dimensional arrays of an NPZ file, as columns."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:  # numpy raises half a dozen kinds for a damaged archive
        raise InputError(f"{path} cannot be read as an NPZ file: {error}") from error
    columns = {name: array for name, array in arrays.items() if array.ndim == 1}
    longest = max((array.size for array in columns.values()), default=0)
    same = {name: array for name, array in columns.items() if array.size == longest and array.dtype.kind in "biufUM"}
    if not same:
        raise InputError(f"{path} holds no one-dimensional array of numbers, dates or text")
    return pa.RecordBatch.from_arrays([pa.array(array) for array in same.values()], names=list(same))


def arrow_batches(source: Any) -> Iterator[pa.RecordBatch]:
    """Rows of an Arrow table or stream, a data frame, or a mapping of arrays; a batch without rows comes first."""
    if isinstance(source, Mapping):
        try:
            source = pa.table({name: np.asarray(values) for name, values in source.items()})
        except (pa.ArrowException, OverflowError, ValueError) as error:
            raise InputError(f"these arrays do not make a table: {error}") from error
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


def cursor_batches(cursor: Any) -> Iterator[pa.RecordBatch]:
    """The result of a query that a DB-API cursor has executed."""
    if cursor.description is None:
        raise InputError("this cursor has no result: execute a query that selects rows first")
    names = [column[0] for column in cursor.description]
    cursor.arraysize = BATCH_ROWS
    schema: pa.Schema | None = None
    while fetched := cursor.fetchmany(BATCH_ROWS):
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
        except (pa.ArrowException, OverflowError):
            arrays.append(pa.array([None if value is None else str(value) for value in column], pa.string()))
    return pa.RecordBatch.from_arrays(arrays, names=names)
