"""Predictions as a table: a row per node or pair and snapshot, written snapshot by snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from strobe.engine.evaluation.predict_links import iter_listed
from strobe.engine.evaluation.tables import (
    WrittenTable,
    embedding_column,
    node_columns,
    opener,
    time_columns,
    write_tables,
)
from strobe.engine.forward import embeddings, predict_examples
from strobe.engine.run import Run
from strobe.errors import OptionError, UnknownNameError
from strobe.graph.progress import OnProgress
from strobe.tasks import Examples
from strobe.tasks.base import Problem
from strobe.tasks.link_prediction import LinkProblem
from strobe.tasks.split import PARTS

NEXT = "next"


def predictions(run: Run, part: str = NEXT, *, embeddings: bool = False) -> pa.Table:
    """All predictions of a part in memory; ``write_predictions`` holds one snapshot at a time."""
    tables = list(iter_tables(run, part, with_embeddings=embeddings))
    if not tables:
        raise _nothing(part)
    return pa.concat_tables(tables)


def write_predictions(
    run: Run,
    path: str | PathLike[str],
    part: str = NEXT,
    *,
    embeddings: bool = False,
    on_progress: OnProgress | None = None,
) -> WrittenTable:
    """Write predictions of a part, snapshot by snapshot, to a file whose suffix says its format."""
    opener(path)
    tables = iter_tables(run, part, with_embeddings=embeddings, on_progress=on_progress)
    return write_tables(path, tables, _nothing(part))


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

    def count(t: int) -> None:
        if on_progress is not None:
            on_progress(t + 1, times.stop)

    if isinstance(problem, LinkProblem):
        make_pairs = problem.unlabeled_examples if part == NEXT else problem.sample_pairs
        yield from iter_listed(run, windows, times, make_pairs, count, with_embeddings=with_embeddings)
        return
    run.model.eval()
    run.head.eval()
    make_examples = problem.unlabeled_examples if part == NEXT else problem.examples
    for t, z, local in embeddings(run.model, run.head, problem, windows, times, make_examples, count):
        columns = problem.table(predict_examples(run.head, z, local.examples), local.examples, t)
        if part == NEXT:
            columns = {name: values for name, values in columns.items() if not name.startswith("actual")}
        yield _table(run, t, local.examples, columns, z if with_embeddings else None)


def _nothing(part: str) -> OptionError:
    return OptionError(f"the part {part!r} has no examples: its snapshots are empty")


def _table(run: Run, t: int, examples: Examples, columns: dict[str, Any], z: Tensor | None) -> pa.Table:
    graph = run.problem.graph
    rows = np.arange(len(examples)) if examples.cell_index is None else examples.cell_index[0].cpu().numpy()
    found = node_columns(graph, {"node": graph[t].nodes[rows].astype(np.int64)})
    found |= time_columns(graph, t, run.job.task.shift, len(examples)) | columns
    if z is not None:
        found["embedding"] = embedding_column(z, rows)
    return pa.table(found)


def _last_snapshots(problem: Problem) -> range:
    """Snapshots after the last that has examples; where labels belong to their own snapshot, the last one."""
    after = range(problem.split.test.stop, len(problem.graph))
    return after if len(after) else range(len(problem.graph) - 1, len(problem.graph))
