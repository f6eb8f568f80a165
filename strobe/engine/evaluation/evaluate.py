"""Metrics of a part of the snapshots; validation between epochs, or in the background while training goes on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from strobe.batching.base import EpochResult, StepSource
from strobe.engine.checkpoint.serialization import copy_tree
from strobe.engine.checkpoint.store import TrainState, Weights, load_weights
from strobe.engine.examples import LocalExamples, evaluation_examples
from strobe.engine.forward import predict_windows
from strobe.engine.job import Job
from strobe.engine.windows import Window
from strobe.ops.sparse.csr import IntArray
from strobe.tasks.base import Examples, Metrics, Problem

_Array = npt.NDArray[Any]
_RankPredictions = tuple[int, IntArray, _Array, _Array, _Array | None, _Array | None]
"""Snapshot, indices of its examples, predictions, labels, offsets, and ends of pairs, [n, 2]."""


def score(
    model: nn.Module,
    head: nn.Module,
    job: Job,
    windows: Iterable[Window],
    part: range,
    problem: Problem | None = None,
    *,
    scored: dict[int, Examples] | None = None,
) -> Metrics:
    """Metrics of a part, from the windows that score it (``Job.evaluation_windows``). Rank 0 gathers the predictions of
    all ranks in the order of one rank and broadcasts the metrics. ``scored`` is filled with the examples by snapshot,
    where this rank has all of them."""
    problem = job.problem if problem is None else problem
    model.eval()
    head.eval()
    with job.comm.ledger.phase("evaluate"):
        local = list(predict_windows(model, head, problem, windows, part))
        if job.partitioned_graph.is_partitioned:
            ranks = job.comm.gather_object([_to_plain(*each) for each in local], kind="predictions")
            with job.comm.rank_0_alone("score"):
                found = _metrics(problem, part, *_merge_ranks(ranks)) if job.comm.rank == 0 else None
        else:  # this rank has predicted all examples
            if scored is not None:
                scored |= {t: each.examples for t, _, each in local}
            found = _metrics(problem, part, [each for _, each, _ in local], [each.examples for _, _, each in local])
        metrics: Metrics = job.comm.broadcast_object(found, kind="predictions")
        return metrics


def _metrics(problem: Problem, part: range, predictions: list[Tensor], examples: list[Examples]) -> Metrics:
    return problem.metrics(predictions, examples) | problem.coverage(part, examples)


def cached_examples(job: Job, windows: Iterable[Window], part: range) -> dict[int, Examples]:
    """The evaluation's examples of pairs in a part by snapshot, which windows that score it keep; empty where this rank
    has some of them alone, or where windows are built for each evaluation."""
    if not job.problem.is_edge_level or job.partitioned_graph.is_partitioned or not isinstance(windows, list):
        return {}
    found: dict[int, Examples] = {}
    for segment in (segment for window in windows for segment in window):
        times = segment.targets_in(part)
        for t, local in zip(times, evaluation_examples(job.problem, segment, times), strict=True):
            if local is not None:
                found[t] = local.examples
    return found


def _to_plain(t: int, predictions: Tensor, local: LocalExamples) -> _RankPredictions:
    examples = local.examples
    at = np.arange(len(local)) if local.example_index is None else local.example_index
    offset = None if examples.offset is None else examples.offset.cpu().numpy()
    ends = None if examples.edge_label_index is None else examples.edge_label_index.cpu().numpy().T
    return t, at, predictions.numpy(), examples.labels.cpu().numpy(), offset, ends


def _merge_ranks(ranks: list[list[_RankPredictions]]) -> tuple[list[Tensor], list[Examples]]:
    """Predictions and examples of each snapshot, those of all ranks in one order."""
    by_time: dict[int, list[_RankPredictions]] = {}
    for each in chain.from_iterable(ranks):
        by_time.setdefault(each[0], []).append(each)
    predictions, examples = [], []
    for _, parts in sorted(by_time.items()):
        order = np.argsort(np.concatenate([part[1] for part in parts]), kind="stable")
        predicted, labels, offset, ends = (_join([part[k] for part in parts], order) for k in range(2, 6))
        assert predicted is not None
        assert labels is not None
        predictions.append(predicted)
        examples.append(Examples(None, labels, offset, None if ends is None else ends.T))
    return predictions, examples


def _join(parts: list[Any], order: IntArray) -> Tensor | None:
    known = [part for part in parts if part is not None]
    return torch.from_numpy(np.concatenate(known)[order]) if known else None


class Evaluator(ABC):
    """Scores the weights of a run, for its history and for its patience. All ranks call every method."""

    def __init__(self, job: Job, state: TrainState, source: StepSource) -> None:
        self._job, self._state, self._source = job, state, source

    @property
    def _is_due(self) -> bool:
        return self._state.epoch % self._job.settings.evaluate_every == 0

    def score(self) -> Metrics:
        """Metrics of the current weights, computed by all ranks together."""
        job, state = self._job, self._state
        return score(state.model, state.head, job, self._source.validation_windows, job.problem.split.validation)

    def before_training(self) -> None:  # noqa: B027
        """Score the initial weights of a new run, where they may be its best."""

    @abstractmethod
    def after_epoch(self, result: EpochResult) -> dict[str, Any]:
        """What the epoch's line of the record says of an evaluation: of this epoch, or of an earlier one."""

    def finish(self) -> None:  # noqa: B027
        """Training is over: wait for evaluations that are pending."""

    def close(self) -> None:  # noqa: B027
        """Release threads."""


def make_evaluator(job: Job, state: TrainState, source: StepSource) -> Evaluator:
    """The evaluator that the schedule asks for."""
    return (BackgroundEvaluator if job.plan.schedule.async_evaluation else BlockingEvaluator)(job, state, source)


class BlockingEvaluator(Evaluator):
    """Scores at the end of epochs; training waits. Untrained weights that predict the problem's offset are scored, too:
    a run never ends worse in validation than what it started from."""

    def before_training(self) -> None:
        problem = self._job.problem
        if self._state.epoch == 0 and problem.starts_at_offset:
            self._job.progress.stage("scoring the initial weights", 0, None)
            self._state.record_metric(self.score().get(problem.metric), problem.higher_is_better)

    def after_epoch(self, result: EpochResult) -> dict[str, Any]:
        if result.metrics is None and not self._is_due:
            return {}
        metrics = dict(self.score() if result.metrics is None else result.metrics)
        problem = self._job.problem
        self._state.record_metric(metrics.get(problem.metric), problem.higher_is_better)
        return {"validation": metrics}


class BackgroundEvaluator(Evaluator):
    """Rank 0 scores a copy of the weights in a thread, on its own windows of the whole graph, while training goes on.

    While it is busy no other weights are taken: training never waits, and a slow evaluation means fewer of them.
    """

    def __init__(self, job: Job, state: TrainState, source: StepSource) -> None:
        super().__init__(job, state, source)
        self._scorer = BackgroundScorer(job, state.model, state.head) if job.comm.rank == 0 else None

    def after_epoch(self, result: EpochResult) -> dict[str, Any]:
        del result
        found: list[dict[str, Any]] = []
        if self._scorer is not None:
            found = self._record(self._scorer.poll())
            if self._is_due and self._scorer.is_idle:
                self._scorer.submit(self._state.epoch, self._state.weights())
        found = self._broadcast(found)
        return found[0] if found else {}

    def finish(self) -> None:
        state, found = self._state, list[dict[str, Any]]()
        with self._job.comm.rank_0_alone("evaluate"):
            if self._scorer is not None:
                found = self._record(self._scorer.poll(wait=True))
                if state.history and (not found or found[0]["evaluated_epoch"] != state.epoch):
                    self._scorer.submit(state.epoch, state.weights())
                    found += self._record(self._scorer.poll(wait=True))
        for evaluation in self._broadcast(found):
            self._add_to_history(evaluation)
        state.best_weights = self._job.comm.broadcast_object(state.best_weights, kind="weights")

    def close(self) -> None:
        if self._scorer is not None:
            self._scorer.close()

    def _add_to_history(self, evaluation: dict[str, Any]) -> None:
        """Write an evaluation into the line of its epoch. An earlier one there moves to the line of its own epoch."""
        lines = {line["epoch"]: line for line in self._state.history}
        while True:
            line = lines[evaluation["evaluated_epoch"]]
            earlier = {name: line[name] for name in evaluation if "evaluated_epoch" in line}
            line.update(evaluation)
            if not earlier or earlier["evaluated_epoch"] >= line["epoch"]:
                return
            evaluation = earlier

    def _record(self, result: EvaluationResult | None) -> list[dict[str, Any]]:
        """Record a result, if there is one: the evaluation as lines have it."""
        if result is None:
            return []
        problem = self._job.problem
        value = result.metrics.get(problem.metric)
        self._state.record_metric(value, problem.higher_is_better, epoch=result.epoch, weights=result.weights)
        return [{"validation": result.metrics, "evaluated_epoch": result.epoch}]

    def _broadcast(self, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What rank 0 knows, on all ranks: they must stop training together."""
        state = self._state
        known = found, state.best, state.best_epoch, state.evaluations_without_improvement
        known = self._job.comm.broadcast_object(known, kind="predictions")
        found, state.best, state.best_epoch, state.evaluations_without_improvement = known
        return found


@dataclass(frozen=True, eq=False)
class EvaluationResult:
    """The weights after an epoch and their validation metrics."""

    epoch: int
    weights: Weights
    metrics: Metrics


class BackgroundScorer:
    """Scores one set of weights at a time in a thread."""

    def __init__(self, job: Job, model: nn.Module, head: nn.Module) -> None:
        self._job = job.on_one_rank()
        self._model, self._head = deepcopy(model), deepcopy(head)
        self._thread = ThreadPoolExecutor(1, "evaluation")
        self._pending: Future[EvaluationResult] | None = None
        self._windows = self._job.validation_windows()

    @property
    def is_idle(self) -> bool:
        return self._pending is None

    def submit(self, epoch: int, weights: Weights) -> None:
        """Start scoring a copy of the weights after an epoch."""
        assert self._pending is None, "one at a time"
        self._pending = self._thread.submit(self._score, epoch, copy_tree(weights))

    def poll(self, *, wait: bool = False) -> EvaluationResult | None:
        """The result, once, if it is there or waited for; raises what went wrong."""
        if self._pending is None or not (wait or self._pending.done()):
            return None
        result, self._pending = self._pending.result(), None
        return result

    def close(self) -> None:
        """Wait for the thread."""
        self._thread.shutdown()

    def _score(self, epoch: int, weights: Weights) -> EvaluationResult:
        load_weights(self._model, self._head, weights)
        part = self._job.problem.split.validation
        metrics = score(self._model, self._head, self._job, self._windows, part)
        return EvaluationResult(epoch, weights, metrics)
