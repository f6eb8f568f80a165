"""Files of tables: what one is written as, its name says."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa

from strobe.errors import OptionError


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
    from pyarrow import parquet

    return parquet.ParquetWriter(file, schema)  # type: ignore[no-any-return]


class _Csv:
    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        from pyarrow import csv

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
