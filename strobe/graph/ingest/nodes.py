"""Node tables: features and labels joined to nodes by id, static or dated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from strobe.errors import InputError, OptionError
from strobe.graph.arrays import Array
from strobe.graph.features import FeatureProvider, Static
from strobe.graph.ingest.clock import ByColumn, ByFile, Clock, SnapshotBoundaries
from strobe.graph.ingest.columns import (
    ColumnSql,
    Ids,
    TimeUnit,
    check_column_refs,
    id_column,
    is_number,
    label_value,
    number_column,
    text_column,
    time_column,
)
from strobe.graph.ingest.numbering import Numbering
from strobe.graph.ingest.table import SourceTable
from strobe.io.lazy_import import lazy_import
from strobe.ops.sparse.csr import IntArray

if TYPE_CHECKING:
    import pyarrow as pa

    from strobe.graph.ingest.table import Connection
else:
    pa = lazy_import("pyarrow")


@dataclass(frozen=True, kw_only=True)
class NodeTable:
    """A table with one row per node, or with one row per node and time if ``time`` is a column.

    A dated row holds from its snapshot until the node's next row, and makes the node present in its snapshot. A node
    without a row is an error unless ``missing="zero"`` fills its features with zeros. A node without a label is
    unlabeled. Labels that are not numbers become classes in the order of their names.
    """

    source: Any
    id: str | int
    features: Sequence[str | int] = ()
    label: str | int | None = None
    time: str | int | None = None
    missing: Literal["error", "zero"] = "error"

    def __post_init__(self) -> None:
        if self.id is None or isinstance(self.features, str):
            raise OptionError(
                f"a node table needs an id column and a list of features, not {self.id!r}, {self.features!r}"
            )
        check_column_refs(id=self.id, label=self.label, time=self.time)
        for column in self.features:
            check_column_refs(features=column)
        if self.missing not in ("error", "zero"):
            raise OptionError(f"missing must be one of error, zero, not {self.missing!r}")
        if not self.features and self.label is None and self.time is None:
            raise OptionError("a node table needs feature columns, a label column, or a time column")

    def columns(self) -> list[str | int]:
        """All columns that are read."""
        optional = [column for column in (self.label, self.time) if column is not None]
        return [self.id, *self.features, *optional]

    def parse(self, table: SourceTable, ids: Ids, unit: TimeUnit, clock: Clock) -> list[ColumnSql]:
        """Columns to stage."""
        parsed = [id_column("id", self.id, table, ids)]
        parsed += [number_column(f"f{k}", column, table) for k, column in enumerate(self.features)]
        if self.label is not None:
            value = label_value(table.column(self.label), table.type_of(self.label))
            parsed.append(ColumnSql("label", self.label, value, "true", "''", "VARCHAR"))
        if self.time is not None:
            if isinstance(clock, ByFile):
                raise OptionError("a dated node table needs a clock that goes by time or by a column, not by file")
            by_mark = isinstance(clock, ByColumn)
            parsed += [
                text_column("mark", self.time, table) if by_mark else time_column("time", self.time, table, unit)
            ]
        return parsed


class NodeValues:
    """Features and labels of a staged node table, by node; dated ones advance with time."""

    def __init__(self, con: Connection, table: NodeTable, numbering: Numbering, cut: SnapshotBoundaries) -> None:
        self._table = table
        self._dated = table.time is not None
        self._names = numbering.names
        columns = _read_node_columns(con, numbering)
        columns["id"] = numbering.nodes(columns["id"])
        self.classes, labels = _parse_labels(columns.get("label"))
        features = np.stack([columns[f"f{k}"] for k in range(len(table.features))], 1) if table.features else None
        snap = _snapshot_of_rows(columns, cut) if self._dated else np.zeros(len(columns["id"]), np.int64)
        moment = columns.get("time", snap)
        order = np.lexsort((columns["id"], moment, snap))
        self._snap, self._id = snap[order], columns["id"][order].astype(np.int64)
        self._check_no_duplicates(moment[order])
        self._features = None if features is None else features[order]
        self._labels = None if labels is None else labels[order]
        total = numbering.num_nodes
        self._x = None if features is None else np.zeros((total, features.shape[1]), np.float32)
        self._y = None if labels is None else np.full(total, np.nan if labels.dtype.kind == "f" else -1, labels.dtype)
        self._known = np.zeros(total, bool)
        self._done = -2  # rows dated before the first snapshot have number -1 and hold from the beginning

    def present(self, t: int) -> IntArray:
        """Return the nodes with a row dated in snapshot t."""
        if not self._dated:
            return np.empty(0, np.int64)
        start, stop = np.searchsorted(self._snap, (t, t + 1))
        return self._id[start:stop]

    def at(self, t: int, nodes: IntArray | None) -> tuple[Array | None, Array | None]:
        """Return features and labels of these nodes (None: all) in snapshot t, for dated tables."""
        if not self._dated:
            return None, None
        self._move_to(t)
        self._check_no_missing(nodes, f"in snapshot {t}")
        chosen: Any = slice(None) if nodes is None else nodes
        return (
            None if self._x is None else self._x[chosen].copy(),
            None if self._y is None else self._y[chosen].copy(),
        )

    def static_features_and_labels(self) -> tuple[FeatureProvider | None, FeatureProvider | None]:
        """Return static features and labels."""
        if self._dated:
            return None, None
        self._move_to(0)
        self._check_no_missing(None, "in the node table")
        return None if self._x is None else Static(self._x), None if self._y is None else Static(self._y)

    def _move_to(self, t: int) -> None:
        """Apply the rows dated up to t in order of time; the latest row of a node wins."""
        start, stop = np.searchsorted(self._snap, (self._done + 1, t + 1))
        chosen = self._id[start:stop]
        self._known[chosen] = True
        if self._x is not None and self._features is not None:
            self._x[chosen] = self._features[start:stop]
        if self._y is not None and self._labels is not None:
            self._y[chosen] = self._labels[start:stop]
        self._done = t

    def _check_no_duplicates(self, moment: Array) -> None:
        """Refuse two rows for one node and time, which are adjacent in this order."""
        same = (self._id[1:] == self._id[:-1]) & (moment[1:] == moment[:-1]) & (self._snap[1:] == self._snap[:-1])
        if bool(same.any()):
            name = self._name(int(self._id[1:][same][0]))
            if self._dated:
                raise InputError(f"the node table has two rows for one node and time: node {name}")
            raise InputError(
                f"the node table has two rows for one node: node {name}. If they are of different times, "
                "say which column dates them (time=…, --node-time)"
            )

    def _name(self, node: int) -> str:
        return repr(node if self._names is None else self._names[node])

    def _check_no_missing(self, nodes: IntArray | None, where: str) -> None:
        known = self._known if nodes is None else self._known[nodes]
        if self._x is None or self._table.missing == "zero" or bool(known.all()):
            return
        unknown = np.flatnonzero(~known)
        first = ", ".join(self._name(int(node)) for node in (unknown if nodes is None else nodes[unknown])[:3])
        raise InputError(
            f"{unknown.size:,} nodes have no features {where}, such as {first}: "
            "add their rows, or fill in zeros (missing='zero', --fill-missing)"
        )


def _read_node_columns(con: Connection, numbering: Numbering) -> dict[str, Array]:
    """Load the staged table; a missing label is None, -1 or NaN by the type of its column."""
    names = [name for name, *_ in con.execute("DESCRIBE nodes").fetchall() if name not in ("id", "file")]
    selected = ", ".join([f"{numbering.select('id')} AS id", *names])
    table = con.sql(f"SELECT {selected} FROM {numbering.source('nodes', 'id')}").to_arrow_table()
    columns = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        columns[name] = (column.fill_null(-1) if pa.types.is_integer(column.type) else column).to_numpy(False)
    return columns


def _parse_labels(values: Array | None) -> tuple[list[str] | None, Array | None]:
    """Convert labels: integers stay classes, other numbers are targets, names are numbered."""
    if values is None or values.dtype.kind in "iuf":
        return None, values
    labeled = np.array([value is not None for value in values])
    texts = [str(value) for value in values[labeled]]
    if not all(is_number(text) for text in texts):
        classes = sorted(set(texts))
        number = {name: k for k, name in enumerate(classes)}
        labels = np.full(values.size, -1, np.int64)
        labels[labeled] = [number[text] for text in texts]
        return classes, labels
    numbers = np.array([float(text) for text in texts])
    if bool((np.isfinite(numbers) & (numbers == np.floor(numbers)) & (numbers >= 0)).all()):
        labels = np.full(values.size, -1, np.int64)
        labels[labeled] = numbers.astype(np.int64)
        return None, labels
    targets = np.full(values.size, np.nan, np.float32)
    targets[labeled] = numbers
    return None, targets


def _snapshot_of_rows(columns: dict[str, Array], cut: SnapshotBoundaries) -> IntArray:
    """Return the snapshot of every dated row: -1 before the first, T after the end of the last."""
    if cut.starts is not None:
        snap = np.searchsorted(np.array(cut.starts), columns["time"], side="right") - 1
        return np.where(columns["time"] < cut.end, snap, len(cut.starts))
    number = {str(name): k for k, name in enumerate(cut.names)}
    stray = [mark for mark in columns["mark"] if mark not in number]
    if stray:
        raise InputError(f"the node table is dated {stray[0]!r}, which is no snapshot")
    return np.array([number[mark] for mark in columns["mark"]], np.int64)
