"""Counted cost of a training step on a decaying window, per snapshot, next to that of a window without decay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from strobe.batching.trapezoid import Decay
from strobe.engine.job import Job
from strobe.engine.trace import ViewCall, trace_view_calls
from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.sparse.csr import IntArray
from strobe.view.data.permuted import NodeOrder
from strobe.view.partition.local import Reads

if TYPE_CHECKING:
    from strobe.engine.sources.sliding import SlidingWindowSource

_NODES = 64  # of the graph that a model is traced on: row widths do not depend on the number of rows


class StepCost(NamedTuple):
    """Cells, arcs between them, and rows and bytes that ranks exchange for them in a step, forward and backward."""

    cells: int = 0
    arcs: int = 0
    rows_sent: int = 0
    bytes_sent: int = 0
    bytes_resident: int = 0

    @classmethod
    def total(cls, parts: Iterable[StepCost]) -> StepCost:
        return cls(*map(sum, zip(cls(), *parts, strict=True)))


@dataclass(frozen=True)
class RowWidths:
    """Columns of a cell, and of the rows sent to remote readers: one per sparse product, by reading direction."""

    features: int
    state: int
    embedding: int
    item_bytes: int
    sent_columns: Mapping[Reads, Sequence[int]]

    @property
    def bytes_per_cell(self) -> int:
        return (self.features + self.state + self.embedding) * self.item_bytes


@dataclass(frozen=True)
class WindowCost:
    """Costs of a window per snapshot, oldest first, with and without decay; all ranks together."""

    decay: Decay
    times: list[str]
    computed: list[StepCost]
    without_decay: list[StepCost]
    width: RowWidths
    num_ranks: int
    tuned: bool = False

    @property
    def total(self) -> StepCost:
        return StepCost.total(self.computed)

    @property
    def total_without_decay(self) -> StepCost:
        return StepCost.total(self.without_decay)

    def to_json(self) -> dict[str, Any]:
        decay = {"full": self.decay.full, "decayed": self.decay.decayed, "min_keep": self.decay.min_keep}
        sums = {"computed": self.total._asdict(), "without_decay": self.total_without_decay._asdict()}
        return decay | {"tuned": self.tuned} | sums


def window_cost(job: Job, sliding: SlidingWindowSource) -> WindowCost:
    """Count the cost of the last full window of the first epoch.

    Depends on graph and partition only, so any rank, also of a resumed run, can compute it. Uses the current decay,
    which a search may have changed.
    """
    graph, decay, order = job.problem.graph, sliding.decay, sliding.node_order(0)
    blocks = job.plan.schedule.time_order(job.problem.split.train, 0, job.settings.seed)
    windows = [decay.times(t, block.start) for block in blocks for t in block]
    longest = max(map(len, windows), default=0)
    times = [window for window in windows if len(window) == longest][-1] if windows else range(0)
    by_age, width = decay.num_chunks_by_age(sliding.num_chunks), measure_row_widths(job)
    computed = [snapshot_cost(graph[t], order, by_age[times.stop - 1 - t], width) for t in times]
    whole = [snapshot_cost(graph[t], order, sliding.num_chunks, width) for t in times]
    names, tuned = [str(graph.times[t]) for t in times], decay != sliding.initial_decay
    return WindowCost(decay, names, computed, whole, width, job.comm.num_ranks, tuned)


def snapshot_cost(snapshot: Snapshot, order: NodeOrder, num_chunks: int, width: RowWidths) -> StepCost:
    """Count the cost of the first ``num_chunks`` chunks of a snapshot, on all ranks together."""
    place, owners = order.place[snapshot.nodes], order.node_owner[snapshot.nodes]
    read, reader = snapshot.arcs()
    stays = np.maximum(place[read], place[reader]) < num_chunks
    read, reader = read[stays], reader[stays]
    rows_sent = numbers_sent = 0
    for reads, columns in width.sent_columns.items():
        ends = (read, reader) if reads == "in" else (reader, read)
        rows = 2 * _count_remote_reads(*ends, owners)  # each row and its gradient
        rows_sent += rows * len(columns)
        numbers_sent += rows * sum(columns)
    cells = int(np.count_nonzero(place < num_chunks))
    return StepCost(cells, len(read), rows_sent, numbers_sent * width.item_bytes, cells * width.bytes_per_cell)


def _count_remote_reads(read: IntArray, reader: IntArray, owners: IntArray) -> int:
    """Count pairs of a cell and another rank that reads it."""
    remote = owners[read] != owners[reader]
    ranks = int(owners.max(initial=0)) + 1
    return len(np.unique(read[remote].astype(np.int64) * ranks + owners[reader[remote]]))


def measure_row_widths(job: Job) -> RowWidths:
    """Measure the row widths of a job's model by tracing it on a small graph."""
    graph = job.problem.graph
    assert graph.features is not None  # every task adds features
    features = graph.features.shape[0]
    with torch.random.fork_rng():
        model = job.choice.make(features)
    small: DynamicGraph = graph[:2].subset(np.arange(min(_NODES, graph.num_nodes)))
    calls = [call for call in trace_view_calls(model, small) if call.snapshot in (None, len(small) - 1)]
    state = sum(
        call.columns if call.what == "gather_state" else call.state_columns for call in calls if _is_state(call)
    )
    sent: dict[Reads, list[int]] = {}
    for call in calls:
        if call.what == "pull" and not call.is_input:
            reads: Reads = "out" if call.norm == "mean_out" and graph.directed else "in"
            sent.setdefault(reads, []).append(call.columns)
    embedding: Any = model.width
    return RowWidths(features, state, embedding, job.settings.dtype.itemsize, sent)


def _is_state(call: ViewCall) -> bool:
    return call.what == "gather_state" or call.has_row_state
