"""Fuzz target: typed tables, dates, clocks and options, against plain Python."""

from __future__ import annotations

import io
import random
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.fuzzing import odd_options, slow_clocks
from benchmarks.fuzzing.databases import SharedDatabase
from benchmarks.fuzzing.slow_reader import RefusedError
from benchmarks.fuzzing.target import FuzzTarget, SilentDifferenceError
from benchmarks.fuzzing.typed_columns import Column, dates, ids, marks, numbers, weights
from strobe.errors import StrobeError
from strobe.graph import DynamicGraph
from strobe.graph.ingest import ByColumn, Calendar, Clock, EventsEach, Every, Into, ingest

_MAX_SNAPSHOTS = 3000
_KINDS = ["arrow"] * 3 + ["parquet"] * 4 + ["damaged parquet"] * 4 + ["npz", "damaged npz", "mapping", "pandas"]
_KINDS += ["options"] * 4 + ["command"]


class Tables(FuzzTarget):
    """Tables of all types in all containers, cut by all clocks; damaged files; odd options of ``ingest``."""

    name: ClassVar[str] = "tables"
    inputs: ClassVar[int] = 31_000

    def setup(self, cache: Path) -> None:
        from strobe.cli import main

        del main  # it is slow to import
        SharedDatabase().install()

    def run(self, rng: random.Random, folder: Path) -> str:
        kind = rng.choice(_KINDS)
        if kind == "options":
            odd_options.call(rng, folder)
            return "options accepted"
        if kind == "command":
            return _run_command(rng, folder)
        return _Case(rng, kind).run(folder)


class _Case:
    """One table and the options it is read with."""

    def __init__(self, rng: random.Random, kind: str) -> None:
        self.rng, self.kind = rng, kind
        rows = rng.choice([1, 3, 8, 20])
        strict = kind in ("npz", "damaged npz", "mapping")  # arrays have no nulls
        id_kind = rng.choice(["integer", "integer", "string"])
        self.src, self.dst = ids(rng, rows, id_kind, strict), ids(rng, rows, id_kind, strict)
        self.id_kind = id_kind
        dated = rng.random() < 0.5
        self.time = dates(rng, rows, strict) if dated else numbers(rng, rows, strict)
        self.weight = weights(rng, rows, strict) if rng.random() < 0.6 else None
        self.mark = marks(rng, rows)
        self.clock, self.cut = self._clock(rng, self.time.unit != "number")
        self.skip = rng.random() < 0.7

    def run(self, folder: Path) -> str:
        source, columns = self._source(folder)
        if columns is None:
            self._ingest(source, folder)
            return "unverified"
        expected, bad, reason = self._expected(columns)
        try:
            graph = self._ingest(source, folder)
        except StrobeError as error:
            if reason or (bad and not self.skip) or not expected:
                return "refused"
            if self.kind.startswith("damaged"):
                return "refused"  # a reader may find more damage than another one
            raise SilentDifferenceError(f"refused: {error}\n{self}") from error
        if reason or (bad and not self.skip):
            raise SilentDifferenceError(f"accepted, {reason or 'with bad rows'}\n{self}")
        self._compare(graph, expected, bad)
        return "accepted damaged" if self.kind.startswith("damaged") else "accepted"

    def _ingest(self, source: Any, folder: Path) -> DynamicGraph:
        options: dict[str, Any] = {"skip_bad_rows": True, "rejects": folder / "rejects.csv"} if self.skip else {}
        options["ids"] = self.id_kind
        options["time_unit"] = self.time.unit if self.rng.random() < 0.9 or not self.time.guessable else None
        return ingest(
            source,
            src="src",
            dst="dst",
            time="time",
            weight=None if self.weight is None else "weight",
            clock=self.clock,
            repeated="keep",
            max_snapshots=_MAX_SNAPSHOTS,
            **options,
        )

    @property
    def _reads_marks(self) -> bool:
        return isinstance(self.clock, ByColumn)

    def _columns(self) -> dict[str, Column]:
        columns = {"src": self.src, "dst": self.dst, "time": self.time, "mark": self.mark}
        return columns if self.weight is None else columns | {"weight": self.weight}

    def _source(self, folder: Path) -> tuple[Any, dict[str, list[Any]] | None]:
        """The table as it is given to Strobe, and the values that it holds; None where no other reader knows them."""
        columns = self._columns()
        values = {name: column.values for name, column in columns.items()}
        if "npz" in self.kind or self.kind == "mapping":
            arrays = {name: column.numpy() for name, column in columns.items()}
            if self.kind == "mapping":
                return arrays, values
            path = folder / "table.npz"
            np.savez(path, **arrays)
            if self.kind == "npz":
                return path, values
            self._damage(path)
            try:
                with np.load(path, allow_pickle=False) as file:
                    needed = {name: array for name, array in arrays.items() if name != "mark" or self._reads_marks}
                    same = all(np.array_equal(file[name], array) for name, array in needed.items())
            except Exception:  # whatever numpy raises: Strobe must refuse it, too
                return path, {}
            return path, values if same else None
        table = pa.table({name: column.arrow() for name, column in columns.items()})
        if self.kind == "arrow":
            return table, values
        if self.kind == "pandas":
            return table.to_pandas(), values
        path = folder / f"table{self.rng.choice(['.parquet', '.pq'])}"
        compression = self.rng.choice(["none", "snappy", "gzip", "zstd"])
        pq.write_table(table, path, compression=compression, row_group_size=self.rng.choice([1, 5, 1000]))
        if self.kind == "parquet":
            return path, values
        self._damage(path)
        return path, _seen_by_arrow(path, table, values)

    def _damage(self, path: Path) -> None:
        data, rng = bytearray(path.read_bytes()), self.rng
        for _ in range(rng.choice([1, 1, 2, 8])):
            at = rng.randrange(len(data)) if data else 0
            match rng.randrange(4):
                case 0 | 1:
                    data[at : at + 1] = bytes([data[at] ^ (1 << rng.randrange(8))]) if data else b""
                case 2:
                    length = rng.choice([1, 4, 30])
                    data[at : at + length] = rng.randbytes(min(length, len(data) - at))
                case _:
                    del data[at : at + rng.choice([1, 8, 10_000])]
        path.write_bytes(data)

    def _expected(self, values: dict[str, list[Any]]) -> tuple[Counter[tuple[Any, ...]], int, str]:
        """Edges by snapshot, the number of bad rows, and why the whole table is refused, if it is."""
        if not values:
            return Counter(), 0, "damaged"
        good, bad = [], 0
        for k in range(len(values["src"])):
            src, dst = (_id(values[end][k], self.id_kind) for end in ("src", "dst"))
            time, weight = self.time.time(values["time"][k]), None
            if self.weight is not None:
                weight = self.weight.weight(values["weight"][k])
            if src is None or dst is None or time is None or (self.weight is not None and weight is None):
                bad += 1
            else:
                good.append((src, dst, time, weight, values["mark"][k]))
        if not good:
            return Counter(), bad, "no good row"
        try:
            cut = self.cut(good)
        except RefusedError as error:
            return Counter(), bad, str(error)
        if cut.count > _MAX_SNAPSHOTS:
            return Counter(), bad, f"{cut.count} snapshots"
        self.names = cut.names
        return Counter((snap, *event[:2], event[3]) for snap, event in zip(cut.snaps, good, strict=True)), bad, ""

    def _compare(self, graph: DynamicGraph, expected: Counter[tuple[Any, ...]], bad: int) -> None:
        assert graph.names is not None
        edges = Counter[tuple[Any, ...]]()
        for t, snapshot in enumerate(graph):
            src, dst, weight = snapshot.edges()
            for k in range(src.size):
                pair = graph.names[int(src[k])], graph.names[int(dst[k])]
                edges[(t, *pair, None if weight is None else float(weight[k]))] += 1
        if self.kind == "damaged parquet" and graph.info["bad_rows"] > bad:
            self._compare_fewer(edges, expected, graph.info["bad_rows"] - bad)
            return
        if graph.info["bad_rows"] != bad:
            raise SilentDifferenceError(f"{graph.info['bad_rows']} bad rows instead of {bad}\n{self}")
        if edges != expected:
            raise SilentDifferenceError(f"{edges - expected} instead of {expected - edges}\n{self}")
        if self.names is not None and list(graph.times) != self.names:
            raise SilentDifferenceError(f"snapshots {graph.times[:20]} instead of {self.names[:20]}\n{self}")

    def _compare_fewer(self, edges: Counter[tuple[Any, ...]], expected: Counter[tuple[Any, ...]], more: int) -> None:
        """DuckDB may find damage that Arrow does not: such rows are counted as bad, and nothing else differs."""
        read, known = (Counter[tuple[Any, ...]](edge[1:] for edge in each.elements()) for each in (edges, expected))
        if read - known or (known - read).total() != more:
            raise SilentDifferenceError(f"{more} more bad rows, but {read - known} instead of {known - read}\n{self}")

    def _clock(self, rng: random.Random, dated: bool) -> tuple[Clock, Any]:
        match rng.randrange(6):
            case 0 | 1:
                length = rng.choice([60, 3600, 86400, 604800, 12345] if dated else [1, 5, 0.5, 0.1, 0.25, 0.3, 7])
                return Every(length), lambda events: slow_clocks.every(length, events, dated=dated)
            case 2 | 3 if dated:
                unit: Any = rng.choice(["hour", "day", "week", "month", "quarter", "year"])
                return Calendar(unit), lambda events: slow_clocks.calendar(unit, events)
            case 4:
                size = rng.choice([1, 2, 5])
                return EventsEach(size), lambda events: slow_clocks.events_each(size, events)
            case 5:
                return ByColumn("mark"), slow_clocks.by_column
            case _:
                count = rng.choice([1, 2, 3, 10])
                return Into(count), lambda events: slow_clocks.into(count, events)

    def __str__(self) -> str:
        shown = {name: (column.kind, column.values) for name, column in self._columns().items()}
        return f"{self.kind}, {self.clock}, ids={self.id_kind}, unit={self.time.unit}, skip={self.skip}\n{shown}"


def _id(value: Any, kind: str) -> int | str | None:
    if value is None or value != value:
        return None
    if isinstance(value, str) and kind == "integer":
        digits = value.strip(" \t")
        value = int(digits) if digits.removeprefix("-").isdecimal() and digits.isascii() else None
    elif kind == "string":
        return str(value) or None
    if value is None or (isinstance(value, float | Decimal) and value != int(value)):
        return None
    return int(value) if 0 <= value < 2**63 else None


def _seen_by_arrow(path: Path, table: pa.Table, values: dict[str, list[Any]]) -> dict[str, list[Any]] | None:
    """The values if Arrow still reads the same table from a damaged file; otherwise what it holds is unknown."""
    try:
        read = pq.ParquetFile(path).read()
        return values if read.equals(table) else None
    except Exception:  # whatever Arrow raises: DuckDB may not need the part that is damaged
        return None


def _run_command(rng: random.Random, folder: Path) -> str:
    """``strobe ingest`` with odd arguments: it ends with a code of its own and no traceback."""
    from strobe.cli import main

    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        try:
            main.app(odd_options.arguments(rng, folder), standalone_mode=False)
        except SystemExit as left:
            if left.code not in (0, 1, 2, None):
                raise SilentDifferenceError(f"exit code {left.code}") from left
            return "command ended"
        except Exception as error:
            if type(error).__module__.startswith(("click", "typer")):
                return "command refused"
            raise
    return "command accepted"
