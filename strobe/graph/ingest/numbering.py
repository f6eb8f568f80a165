"""Numbering: raw ids, integers or strings, become nodes 0..N-1 in ascending order of the raw id.

The order of rows plays no part, so shuffled rows give the same graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from strobe.errors import InputError, OptionError
from strobe.graph.features import Array
from strobe.graph.ingest.columns import Ids
from strobe.graph.names import NodeNames
from strobe.ops.csr import IntArray, index_dtype

if TYPE_CHECKING:
    import duckdb

    Connection = duckdb.DuckDBPyConnection

_BATCH_ROWS = 1 << 20
_DENSE_SPAN = 1 << 26


@dataclass(frozen=True)
class Numbering:
    """How staged ids become nodes: by a join in the database, or by a function over what comes out of it."""

    num_nodes: int
    names: NodeNames | None
    nodes: Callable[[Array], IntArray]
    joined: bool = False

    def select(self, *columns: str) -> str:
        """SQL of what stands for these columns of a staged table: raw ids, or nodes where they are joined."""
        return ", ".join(f"ids_{column}.node" if self.joined else column for column in columns)

    def source(self, table: str, *columns: str) -> str:
        """The staged table, joined to the nodes of these columns where need be."""
        if not self.joined:
            return table
        joins = (f"JOIN ids AS ids_{column} ON ids_{column}.name = {column}" for column in columns)
        return " ".join([table, *joins])


def as_given(con: Connection, columns: list[tuple[str, str]], num_nodes: int | None, max_nodes: int) -> Numbering:
    """Ids are node numbers already: 0..num_nodes-1, or up to the largest one found, of at most ``max_nodes``."""
    high = _range(con, columns)[1]
    if num_nodes is None and high >= max_nodes:
        raise OptionError(
            f"node {high:,} would make {high + 1:,} nodes, more than {max_nodes:,}: leave renumber on, "
            "or allow so many (max_nodes, or num_nodes)"
        )
    total = high + 1 if num_nodes is None else num_nodes
    if high >= total:
        raise InputError(f"there is a node {high}, outside 0..{total - 1}")
    return Numbering(total, None, lambda raw: raw)


def renumbered(con: Connection, columns: list[tuple[str, str]], ids: Ids) -> Numbering:
    """Numbers the ids found in the given (table, column) pairs, and keeps their names."""
    return _integers(con, columns) if ids == "integer" else _strings(con, columns)


def _integers(con: Connection, columns: list[tuple[str, str]]) -> Numbering:
    low, high = _range(con, columns)
    span = high - low + 1
    [(rows,)] = con.execute("SELECT count(*) FROM events").fetchall()
    if span <= max(_DENSE_SPAN, 8 * rows):
        present = np.zeros(span, np.bool_)
        for batch in _batches(con, [f"SELECT {column} FROM {table}" for table, column in columns]):
            present[batch - low] = True
        dense = np.flatnonzero(present) + low
        place = np.cumsum(present, dtype=index_dtype(span)) - 1
        return Numbering(dense.size, NodeNames(integers=dense), lambda raw: place[raw - low])
    every = " UNION ".join(f"SELECT {column} AS id FROM {table}" for table, column in columns)
    known = np.concatenate(list(_batches(con, [f"SELECT id FROM ({every}) ORDER BY id"])))
    return Numbering(known.size, NodeNames(integers=known), lambda raw: np.searchsorted(known, raw))


def _strings(con: Connection, columns: list[tuple[str, str]]) -> Numbering:
    every = " UNION ".join(f"SELECT {column} AS name FROM {table}" for table, column in columns)
    con.execute(f"CREATE TABLE ids AS SELECT name, row_number() OVER (ORDER BY name) - 1 AS node FROM ({every})")
    lengths, texts = [np.zeros(1, np.int64)], []
    for batch in con.sql("SELECT name FROM ids ORDER BY node").to_arrow_reader(_BATCH_ROWS):
        column = batch.column(0).cast(pa.large_binary())
        offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
        lengths.append(np.diff(offsets))
        texts.append(np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]])
    ptr = np.cumsum(np.concatenate(lengths))
    names = NodeNames(ptr=ptr, text=np.concatenate(texts) if texts else np.empty(0, np.uint8))
    return Numbering(len(names), names, lambda raw: raw, joined=True)


def _range(con: Connection, columns: list[tuple[str, str]]) -> tuple[int, int]:
    parts = " UNION ALL ".join(f"SELECT min({c}) AS low, max({c}) AS high FROM {t}" for t, c in columns)
    [(low, high)] = con.execute(f"SELECT min(low), max(high) FROM ({parts})").fetchall()
    return (0, -1) if low is None else (int(low), int(high))


def _batches(con: Connection, queries: list[str]) -> Iterator[IntArray]:
    for query in queries:
        for batch in con.sql(query).to_arrow_reader(_BATCH_ROWS):
            ids: Array = np.from_dlpack(batch.column(0))  # to_numpy would import pandas where it is installed
            yield ids
