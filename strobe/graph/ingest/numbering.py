"""Numbering: raw ids, integers or strings, become nodes 0..N-1 in ascending order of the raw id.

The order of rows does not matter: shuffled rows give the same graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from strobe.errors import InputError, OptionError
from strobe.graph.arrays import Array
from strobe.graph.ingest.columns import Ids
from strobe.graph.names import NodeNames
from strobe.io.lazy_import import lazy_import
from strobe.ops.sparse.csr import IntArray, index_dtype

if TYPE_CHECKING:
    import pyarrow as pa

    from strobe.graph.ingest.table import Connection
else:
    pa = lazy_import("pyarrow")

_BATCH_ROWS = 1 << 20
_DENSE_SPAN = 1 << 26


@dataclass(frozen=True)
class Numbering:
    """Mapping from staged ids to nodes: a join in the database, or a function over its results."""

    num_nodes: int
    names: NodeNames | None
    nodes: Callable[[Array], IntArray]
    by_join: bool = False

    def select(self, *columns: str) -> str:
        """Return the SQL of these columns of a staged table: raw ids, or nodes if they are joined."""
        return ", ".join(f"ids_{column}.node" if self.by_join else column for column in columns)

    def source(self, table: str, *columns: str) -> str:
        """Return the staged table, joined to the nodes of these columns if necessary."""
        if not self.by_join:
            return table
        joins = (f"JOIN ids AS ids_{column} ON ids_{column}.name = {column}" for column in columns)
        return " ".join([table, *joins])


def use_ids_as_nodes(
    con: Connection, columns: list[tuple[str, str]], num_nodes: int | None, max_nodes: int
) -> Numbering:
    """Use ids as node numbers: 0..num_nodes-1, or up to the largest id, at most ``max_nodes``."""
    high = _id_range(con, columns)[1]
    if num_nodes is None and high >= max_nodes:
        raise OptionError(
            f"node {high:,} would make {high + 1:,} nodes, more than {max_nodes:,}: leave renumber on, "
            "or raise the limit (max_nodes, or num_nodes)"
        )
    total = high + 1 if num_nodes is None else num_nodes
    if high >= total:
        raise InputError(f"there is a node {high}, outside 0..{total - 1}")
    return Numbering(total, None, lambda raw: raw)


def renumber_ids(con: Connection, columns: list[tuple[str, str]], ids: Ids) -> Numbering:
    """Number the ids of these (table, column) pairs and keep their names."""
    return _renumber_integers(con, columns) if ids == "integer" else _renumber_strings(con, columns)


def _renumber_integers(con: Connection, columns: list[tuple[str, str]]) -> Numbering:
    low, high = _id_range(con, columns)
    span = high - low + 1
    [(rows,)] = con.execute("SELECT count(*) FROM events").fetchall()
    if span <= max(_DENSE_SPAN, 8 * rows):
        present = np.zeros(span, np.bool_)
        for batch in _read_ids(con, [f"SELECT {column} FROM {table}" for table, column in columns]):
            present[batch - low] = True
        dense = np.flatnonzero(present) + low
        place = np.cumsum(present, dtype=index_dtype(span)) - 1
        return Numbering(dense.size, NodeNames(name_int=dense), lambda raw: place[raw - low])
    every = " UNION ".join(f"SELECT {column} AS id FROM {table}" for table, column in columns)
    known = np.concatenate(list(_read_ids(con, [f"SELECT id FROM ({every}) ORDER BY id"])))
    return Numbering(known.size, NodeNames(name_int=known), lambda raw: np.searchsorted(known, raw))


def _renumber_strings(con: Connection, columns: list[tuple[str, str]]) -> Numbering:
    every = " UNION ".join(f"SELECT {column} AS name FROM {table}" for table, column in columns)
    con.execute(f"CREATE TABLE ids AS SELECT name, row_number() OVER (ORDER BY name) - 1 AS node FROM ({every})")
    lengths, texts = [np.zeros(1, np.int64)], []
    for batch in con.sql("SELECT name FROM ids ORDER BY node").to_arrow_reader(_BATCH_ROWS):
        column = batch.column(0).cast(pa.large_binary())
        offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
        lengths.append(np.diff(offsets))
        texts.append(np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]])
    ptr = np.cumsum(np.concatenate(lengths))
    names = NodeNames(name_ptr=ptr, name_text=np.concatenate(texts) if texts else np.empty(0, np.uint8))
    return Numbering(len(names), names, lambda raw: raw, by_join=True)


def _id_range(con: Connection, columns: list[tuple[str, str]]) -> tuple[int, int]:
    parts = " UNION ALL ".join(f"SELECT min({c}) AS low, max({c}) AS high FROM {t}" for t, c in columns)
    [(low, high)] = con.execute(f"SELECT min(low), max(high) FROM ({parts})").fetchall()
    return (0, -1) if low is None else (int(low), int(high))


def _read_ids(con: Connection, queries: list[str]) -> Iterator[IntArray]:
    for query in queries:
        for batch in con.sql(query).to_arrow_reader(_BATCH_ROWS):
            ids: Array = np.from_dlpack(batch.column(0))  # to_numpy would import pandas if it is installed
            yield ids
