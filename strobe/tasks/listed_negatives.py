"""Negatives of evaluation that are listed in a file."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from strobe.errors import BadRowsError, InputError, UnknownNameError
from strobe.graph import DynamicGraph
from strobe.ops.sparse.csr import IntArray
from strobe.tasks.pairs import MAX_NODES, Keys, contains, split_keys
from strobe.tasks.target_edges import TargetEdges

SUFFIXES = (".csv", ".parquet", ".npz")

_MAX_SHOWN = 5
"""Bad lines that a message shows, at most."""


@dataclass(frozen=True, eq=False)
class ListedNegatives:
    """Negatives of the sources of target snapshots.

    Args:
        path: the file.
        keys: per target snapshot ascending unique keys of pairs.
    """

    path: Path
    keys: Mapping[int, Keys]

    @classmethod
    def read(cls, path: Path, graph: DynamicGraph) -> ListedNegatives:
        """Read a table with the columns ``source``, ``destination`` and ``snapshot`` (a number from 0) or ``time`` (as
        that of the snapshot is printed). Ends are names where the graph has names, otherwise node ids.

        Raises:
            InputError: the file cannot be read, or lacks a column.
            BadRowsError: a line is no pair of different nodes, or its snapshot does not exist.
        """
        table = _read_columns(path)
        when = next((name for name in ("snapshot", "time") if name in table), None)
        absent = [name for name in ("source", "destination") if name not in table]
        if when is None or absent:
            wanted = ", ".join([*absent, *([] if when else ["snapshot or time"])])
            raise InputError(f"{path}: no column {wanted}; it has {', '.join(table) or 'none'}")
        bad: dict[int, str] = {}
        if when == "time":
            times = {str(graph[t].time): t for t in range(len(graph))}
            target = _convert(table[when], lambda value: _find_time(value, times), bad)
        else:
            target = _convert(table[when], lambda value: _read_number(value, len(graph), "snapshot"), bad)
        names = graph.names
        find = names.find if names is not None else lambda value: _read_number(value, graph.num_nodes, "node")
        src, dst = (_convert(table[name], find, bad) for name in ("source", "destination"))
        for k in np.flatnonzero((src == dst) & (src >= 0)):
            bad.setdefault(int(k), "source and destination are the same node")
        _refuse(path, bad)
        pairs = src * MAX_NODES + dst
        return cls(path, {int(t): np.unique(pairs[target == t]) for t in np.unique(target)})

    def check(self, target: int, edges: TargetEdges, *, directed: bool) -> None:
        """Refuse edges of the target snapshot among its negatives, and sources of positives without negatives."""
        pairs = self.keys.get(target, np.empty(0, np.int64))
        wrong = pairs[contains(edges.arcs, pairs)]
        if len(wrong):
            s, d = divmod(int(wrong[0]), MAX_NODES)
            raise InputError(
                f"{self.path}: the pair of nodes {s} and {d} is an edge of snapshot {target}, no negative, as "
                f"{len(wrong) - 1:,} others are: leave them out"
            )
        src, dst = split_keys(edges.edges)
        self.of_sources(target, src if directed else self.orient(target, src, dst)[0])

    def orient(self, target: int, src: Keys, dst: Keys) -> tuple[Keys, Keys]:
        """Exchange the ends of undirected edges where only the other end has negatives."""
        count, other = self._count(target, src), self._count(target, dst)
        turned = (count == 0) & (other > 0)
        return np.where(turned, dst, src), np.where(turned, src, dst)

    def of_sources(self, target: int, src: Keys) -> tuple[IntArray, Keys]:
        """The number of negatives of each source, and all of them, one source after the other.

        Raises:
            InputError: a source has none.
        """
        count = self._count(target, src)
        if not count.all():
            node = int(src[np.argmin(count)])
            raise InputError(
                f"{self.path}: snapshot {target} has a positive of source {node} without negatives, as "
                f"{int((count == 0).sum()) - 1:,} other positives: list at least one destination for each source"
            )
        pairs = self.keys[target]
        first = np.searchsorted(pairs, src * MAX_NODES)
        begin = np.cumsum(count) - count
        place = np.arange(int(count.sum())) + np.repeat(first - begin, count)
        return count, split_keys(pairs[place])[1]

    def _count(self, target: int, src: Keys) -> npt.NDArray[np.int64]:
        pairs = self.keys.get(target, np.empty(0, np.int64))
        return np.searchsorted(pairs, (src + 1) * MAX_NODES) - np.searchsorted(pairs, src * MAX_NODES)


def _read_columns(path: Path) -> dict[str, list[Any]]:
    """Columns of a table by name."""
    from pyarrow import ArrowException, parquet  # training without such a file does not load pyarrow

    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                columns = {name: arrays[name].tolist() for name in arrays.files}
        elif path.suffix == ".parquet":
            columns = parquet.read_table(path).to_pydict()
        else:
            columns = _read_csv(path)
    except (OSError, ValueError, EOFError, ArrowException) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    except Exception as error:  # zipfile.BadZipFile and zlib.error of a damaged NPZ
        if path.suffix != ".npz":
            raise
        raise InputError(f"{path}: cannot be read: {error}") from error
    if len({np.ndim(column) for column in columns.values()} - {1}) or len({len(c) for c in columns.values()}) > 1:
        raise InputError(f"{path}: columns must be lists of the same length")
    return columns


def _read_csv(path: Path) -> dict[str, list[Any]]:
    """Columns of text; a line with another number of values is refused by its number."""
    with path.open(newline="", encoding="utf-8") as file:
        lines = csv.reader(file)
        header = [name.strip() for name in next(lines, [])]
        rows = list(lines)
    _refuse(path, {k: f"{len(r)} values, not {len(header)}" for k, r in enumerate(rows) if len(r) != len(header)})
    return {name: [row[k] for row in rows] for k, name in enumerate(header)}


def _convert(column: list[Any], read: Callable[[Any], int], bad: dict[int, str]) -> Keys:
    """Values as numbers; -1 for bad ones, with the reason."""
    known: dict[Any, int | str] = {}
    out = np.full(len(column), -1, np.int64)
    for k, value in enumerate(column):
        if value not in known:
            try:
                known[value] = read(value)
            except (InputError, UnknownNameError) as error:
                known[value] = str(error)
        found = known[value]
        if isinstance(found, str):
            bad.setdefault(k, found)
        else:
            out[k] = found
    return out


def _read_number(value: Any, size: int, what: str) -> int:
    """A whole number below ``size``."""
    try:
        number = int(str(value).strip())
    except ValueError:
        raise InputError(f"{value!r} is no number of a {what}") from None
    if not 0 <= number < size:
        raise InputError(f"{what} {number} does not exist: the graph has {size:,}")
    return number


def _find_time(value: Any, times: Mapping[str, int]) -> int:
    if str(value) not in times:
        raise UnknownNameError("time", value, times)
    return times[str(value)]


def _refuse(path: Path, bad: Mapping[int, str]) -> None:
    """Name bad lines; the header of a CSV file is line 1, and rows of other tables count from 1."""
    if not bad:
        return
    header, what = (2, "line") if path.suffix == ".csv" else (1, "row")
    shown = [f"{path}, {what} {k + header}: {bad[k]}" for k in sorted(bad)[:_MAX_SHOWN]]
    more = [f"{len(bad) - _MAX_SHOWN:,} more"] if len(bad) > _MAX_SHOWN else []
    raise BadRowsError("\n".join([*shown, *more]))
