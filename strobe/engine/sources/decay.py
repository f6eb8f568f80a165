"""Decaying windows: the counted cost of a step next to that of a window without decay, and a search for the decay.

The search trains the same epoch with neighboring settings; the best one continues.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from strobe.batching.base import EpochPolicy, EpochResult, Event
from strobe.batching.trapezoid import Decay, DecaySearchOptions
from strobe.engine.checkpoint.serialization import copy_tree, same_structure
from strobe.engine.checkpoint.store import load_weights
from strobe.engine.job import Job
from strobe.engine.machine import random_state, restore_random_state
from strobe.engine.settings import DivergedError
from strobe.engine.trace import ViewCall, trace_view_calls
from strobe.errors import FormatError, OptionError
from strobe.format import duration, format_metric, percent, pluralize
from strobe.graph import DynamicGraph, Snapshot
from strobe.ops.sparse.csr import IntArray
from strobe.options import short_repr
from strobe.tasks.base import Metrics
from strobe.view.data.permuted import NodeOrder
from strobe.view.partition.local import Reads

if TYPE_CHECKING:
    from strobe.engine.context import RunContext
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


SHARES = (0.02, 0.05, *(k / 10 for k in range(1, 11)))
"""Grid for ``min_keep``. Zero is excluded: a window keeps at least one chunk."""


def neighbor_settings(decay: Decay, num_chunks: int, most: float) -> list[Decay]:
    """Settings one step away, each once, none above ``most`` of a full window; the smallest first. With few chunks a
    step may be larger than a tenth."""
    now, window = decay.num_chunks_by_age(num_chunks), decay.window
    fulls = [full for full in (decay.full - 1, decay.full + 1) if 1 <= full <= window]
    less = [replace(decay, min_keep=share) for share in reversed(SHARES) if share < decay.min_keep]
    more = [replace(decay, min_keep=share) for share in SHARES if share > decay.min_keep]
    ways = [*([replace(decay, full=full, decayed=window - full)] for full in fulls), less, more]
    found: dict[tuple[int, ...], Decay] = {}
    for way in ways:
        for step in [each for each in way if each.num_chunks_by_age(num_chunks) != now][:1]:
            found.setdefault(step.num_chunks_by_age(num_chunks), step)
    return sorted(
        (each for each in found.values() if each.window_share(num_chunks) <= most),
        key=lambda each: each.window_share(num_chunks),
    )


@dataclass(frozen=True)
class Candidate:
    """An epoch trained with one setting; ``value`` is None where training diverged or validation has no examples."""

    decay: Decay
    steps: int
    loss: float
    metrics: Metrics
    value: float | None
    seconds: float

    def to_json(self) -> dict[str, Any]:
        found = _to_json(self.decay) | {"loss": self.loss, "validation": self.metrics}
        return found | {"seconds": round(self.seconds, 6)}


@dataclass(frozen=True)
class SearchRound:
    """The candidates of one epoch, the current setting first."""

    epoch: int
    candidates: list[Candidate]
    chosen: Candidate

    @property
    def is_last(self) -> bool:
        """Whether no neighbour is better."""
        return self.chosen is self.candidates[0]

    def describe(self, metric: str) -> str:
        """What was tried, what each scored and what was taken, in a line for people."""
        first, *others = (f"{format_metric(each.value)} with {_describe_decay(each.decay)}" for each in self.candidates)
        lost = sum(each.seconds for each in self.candidates if each is not self.chosen)
        then = "stays: the search is done" if self.is_last else "goes on"
        return (
            f"epoch {self.epoch}, trained with {pluralize(len(self.candidates), 'setting')}: validation {metric} "
            f"{first} as before, {', '.join(others)}; {_describe_decay(self.chosen.decay)} {then} "
            f"(trying took {duration(lost)})"
        )


_MAX_WINDOW = 1 << 20
"""Longest window that a checkpoint may ask for."""


class DecaySearch(EpochPolicy):
    """Hill climbing over decay settings while training goes on, by all ranks together.

    A round trains an epoch with the current setting and with each of its neighbors, always from the same weights,
    optimizer state, random numbers and inherited states, and continues with the best outcome. The others are lost.
    """

    def __init__(self, run: RunContext, source: SlidingWindowSource, options: DecaySearchOptions) -> None:
        self._job, self._state, self._evaluator = run.job, run.state, run.evaluator
        self._sliding, self._tune = source, options
        self._round: SearchRound | None = None
        self._over = False
        share = source.decay.window_share(source.num_chunks)
        if share > options.max_share:
            raise OptionError(
                f"a step begins with {percent(share)} of a window that keeps everything, and tuning may reach "
                f"{percent(options.max_share)}: begin with fewer full snapshots or a smaller keep, or raise most"
            )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        damaged = FormatError(
            f"the checkpoint's tuning is damaged: windows of this run cannot decay as {short_repr(state)}"
        )
        if not same_structure(state, _to_json(self._sliding.decay) | {"done": False}) or None in state.values():
            raise damaged
        known = {name: value for name, value in state.items() if name != "done"}
        decay = replace(self._sliding.decay, **known)
        if min(decay.full, decay.decayed) < 0 or decay.window > _MAX_WINDOW or not 0 < decay.min_keep <= 1:
            raise damaged
        self._sliding.decay, self._over = decay, state["done"]

    def run(self, train_epoch: Callable[[], EpochResult]) -> EpochResult:
        """Train with the current setting or, if a round is due, with the best of it and its neighbors."""
        self._round = None
        if not self._is_due():
            return train_epoch()
        begin = self._state_dict()
        best = self._try(self._sliding.decay, train_epoch)
        end, trials = self._state_dict(), [best]
        for decay in self._neighbors():
            self._load_epoch_state(begin)
            trials.append(self._try(decay, train_epoch))
            if self._is_better(trials[-1], best):
                best, end = trials[-1], self._state_dict()
        self._load_epoch_state(end)
        self._sliding.decay = best.decay
        self._round = SearchRound(self._state.epoch + 1, trials, best)
        self._over = self._round.is_last
        return EpochResult(best.steps, best.loss, best.metrics)

    def log(self) -> dict[str, Any]:
        return _to_json(self._sliding.decay)

    def events(self) -> list[Event]:
        if self._round is None:
            return []
        candidates = [each.to_json() for each in self._round.candidates]
        chosen = _to_json(self._round.chosen.decay)
        values = {"candidates": candidates, "chosen": chosen, "done": self._round.is_last}
        return [Event("decay_search", values, self._round.describe(self._job.problem.metric))]

    def state_dict(self) -> dict[str, Any]:
        return _to_json(self._sliding.decay) | {"done": self._over}

    def _is_due(self) -> bool:
        """Whether a round is due. Without neighbors left to try the search is done."""
        if self._over or (self._state.epoch + 1) % self._tune.every:
            return False
        self._over = not self._neighbors()
        return not self._over

    def _neighbors(self) -> list[Decay]:
        return neighbor_settings(self._sliding.decay, self._sliding.num_chunks, self._tune.max_share)

    def _try(self, decay: Decay, train_epoch: Callable[[], EpochResult]) -> Candidate:
        began, current = perf_counter(), self._sliding.decay
        self._sliding.decay = decay
        try:
            steps, loss, _ = train_epoch()
            metrics = self._evaluator.score()
        except DivergedError:
            if decay is current:
                raise
            steps, loss, metrics = 0, math.nan, {}
        finally:
            self._sliding.decay = current
        return Candidate(decay, steps, loss, metrics, metrics.get(self._job.problem.metric), perf_counter() - began)

    def _is_better(self, trial: Candidate, than: Candidate) -> bool:
        """What is no number is never better."""
        if trial.value is None or not math.isfinite(trial.value):
            return False
        if than.value is None or math.isnan(than.value):
            return True
        higher = self._job.problem.higher_is_better
        return trial.value > than.value if higher else trial.value < than.value

    def _state_dict(self) -> dict[str, Any]:
        """All that an epoch changes, in the computer's memory: a GPU has other use for its own."""
        state = self._state
        kept = {**state.weights(), "optimizer": state.optimizer.state_dict(), "random": random_state()}
        found: dict[str, Any] = copy_tree(kept | {"inherited": self._sliding.state_dict()}, "cpu")
        return found

    def _load_epoch_state(self, found: dict[str, Any]) -> None:
        state = self._state
        load_weights(state.model, state.head, found)
        state.optimizer.load_state_dict(copy_tree(found["optimizer"]))  # torch takes the very tensors, and changes them
        restore_random_state(found["random"])
        self._sliding.load_state_dict(found["inherited"])


def _to_json(decay: Decay) -> dict[str, Any]:
    return {"full": decay.full, "decayed": decay.decayed, "min_keep": decay.min_keep}


def _describe_decay(decay: Decay) -> str:
    return f"full={decay.full} min_keep={decay.min_keep:g}"
