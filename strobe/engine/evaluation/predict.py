"""Predictions as a table: a row per node or pair and snapshot, written snapshot by snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa
from torch import Tensor

from strobe.engine.forward import embeddings, predict_examples
from strobe.engine.run import Run
from strobe.errors import OptionError, UnknownNameError
from strobe.graph import DynamicGraph
from strobe.graph.progress import OnProgress
from strobe.io.atomic import write_atomic
from strobe.ops.dense.bf16 import BF16
from strobe.tasks import Examples
from strobe.tasks.base import Problem, edge_ends
from strobe.tasks.split import PARTS

NEXT = "next"
_ENDS = {1: ("node",), 2: ("source", "destination")}


def predictions(run: Run, part: str = NEXT, *, embeddings: bool = False) -> pa.Table:
    """All predictions of a part in memory; ``write_predictions`` holds one snapshot at a time."""
    tables = list(iter_tables(run, part, with_embeddings=embeddings))
    if not tables:
        raise _nothing(part)
    return pa.concat_tables(tables)


@dataclass(frozen=True)
class WrittenTable:
    """Predictions that are in a file: how many rows, and the first snapshot's."""

    rows: int
    first: pa.Table


def write_predictions(
    run: Run,
    path: str | PathLike[str],
    part: str = NEXT,
    *,
    embeddings: bool = False,
    on_progress: OnProgress | None = None,
) -> WrittenTable:
    """Write predictions of a part, snapshot by snapshot, to a file whose suffix says its format."""
    open_table = opener(path)
    tables = iter_tables(run, part, with_embeddings=embeddings, on_progress=on_progress)
    written: WrittenTable | None = None

    def write(file: BinaryIO) -> None:
        nonlocal written
        first = next(tables, None)
        if first is None:
            raise _nothing(part)
        rows = 0
        with open_table(file, first.schema) as writer:
            for table in chain([first], tables):
                writer.write_table(table)
                rows += table.num_rows
        written = WrittenTable(rows, first)

    write_atomic(Path(path), write)
    assert written is not None
    return written


def iter_tables(
    run: Run, part: str, *, with_embeddings: bool = False, on_progress: OnProgress | None = None
) -> Iterator[pa.Table]:
    """Yield a table of predictions per snapshot of a part. ``next`` predicts beyond the last snapshot: its tables have
    no actual values."""
    problem = run.problem
    if part not in (*PARTS, NEXT):
        raise UnknownNameError("part", part, (*PARTS, NEXT))
    times = _last_snapshots(problem) if part == NEXT else problem.split.part(part)
    windows = run.job.evaluation_windows(times)
    run.model.eval()
    run.head.eval()

    def count(t: int) -> None:
        if on_progress is not None:
            on_progress(t + 1, times.stop)

    make_examples = problem.unlabeled_examples if part == NEXT else problem.examples
    for t, z, local in embeddings(run.model, run.head, problem, windows, times, make_examples, count):
        columns = problem.table(predict_examples(run.head, z, local.examples), local.examples, t)
        if part == NEXT:
            columns = {name: values for name, values in columns.items() if not name.startswith("actual")}
        yield _table(problem.graph, t, local.examples, columns, z if with_embeddings else None)


def _nothing(part: str) -> OptionError:
    return OptionError(f"the part {part!r} has no examples: its snapshots are empty")


def _table(graph: DynamicGraph, t: int, examples: Examples, columns: dict[str, Any], z: Tensor | None) -> pa.Table:
    rows = (
        [np.arange(len(examples))]
        if examples.cell_index is None
        else [row.cpu().numpy() for row in examples.cell_index]
    )
    nodes = (
        [graph[t].nodes[at].astype(np.int64) for at in rows]
        if examples.edge_label_index is None
        else edge_ends(examples)
    )
    found: dict[str, Any] = {}
    for end, ids in zip(_ENDS[len(rows)], nodes, strict=True):
        found[end] = ids
        if graph.names is not None:
            found["name" if end == "node" else f"{end}_name"] = _names(graph)(ids)
    found["t"] = np.full(len(examples), t, np.int32)
    found["time"] = pa.repeat(pa.scalar(_time(graph, t)), len(examples))
    found |= columns
    if z is not None:
        for end, at in zip(_ENDS[len(rows)], rows, strict=True):
            name = "embedding" if end == "node" else f"{end}_embedding"
            values = (z.float() if z.dtype == BF16 else z).cpu().numpy()[at]
            found[name] = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
    return pa.table(found)


def _time(graph: DynamicGraph, t: int) -> int | str:
    """When snapshot t is; text for all snapshots where it is for one, because a column has one type."""
    return graph.times[t] if all(isinstance(time, int) for time in graph.times) else str(graph.times[t])


def _names(graph: DynamicGraph) -> Callable[[Any], Any]:
    """The names of nodes as an Arrow column, taken from the stored bytes without making Python strings of them."""
    assert graph.names is not None
    stored = graph.names.arrays()
    if "name_int" in stored:
        return lambda nodes: stored["name_int"][nodes]
    ptr = np.ascontiguousarray(stored["name_ptr"], np.int64)
    held = pa.LargeStringArray.from_buffers(len(ptr) - 1, pa.py_buffer(ptr), pa.py_buffer(stored["name_text"]))
    return lambda nodes: held.take(pa.array(nodes))


def _last_snapshots(problem: Problem) -> range:
    """Snapshots after the last that has examples; where labels belong to their own snapshot, the last one."""
    after = range(problem.split.test.stop, len(problem.graph))
    return after if len(after) else range(len(problem.graph) - 1, len(problem.graph))


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
