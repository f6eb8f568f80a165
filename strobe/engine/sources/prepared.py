"""Windows of fixed batches, built before training and cached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from strobe.batching.base import Event, StepSource
from strobe.comm.ledger import BatchSpan
from strobe.engine.examples import evaluation_examples, scored_cells, training_examples
from strobe.engine.job import Job
from strobe.engine.sources.batch_order import BatchOrder
from strobe.engine.windows import Window, window_of_batch
from strobe.schedule import Steps
from strobe.schedule.base import Pacer
from strobe.view import LocalPartition

_PREPARING = "preparing snapshots"

Step = dict[int, Window]
"""Windows of a step that one rank computes, by the number of their batch."""


class PreparedSource(StepSource):
    """Batches that are known before training, in the order of the schedule."""

    def __init__(self, job: Job, saved: dict[str, Any] | None = None) -> None:
        self._job = job
        self._order = BatchOrder(job, saved)
        if job.uses_khop_cache:
            load_khop_cache(job)
        job.progress.stage(_PREPARING, 0, None)
        self._steps = self._build(self._order.steps, {})
        training = [window for step in self._steps for window in step.values()]
        continues = all(batch.continues_state for batch in job.batches) and not job.uses_khop_cache
        self._validation = job.validation_windows(training if continues else None)
        load_windows(job, training, self._validation)
        self.ranks_share_cells = not job.uses_khop_cache and job.partitioned_graph.is_partitioned

    @property
    def steps_per_epoch(self) -> int:
        return len(self._steps)

    @property
    def validation_windows(self) -> Iterable[Window]:
        return self._validation

    def epoch(self, epoch: int, pacer: Pacer) -> Iterator[Step]:
        del epoch, pacer
        yield from self._steps

    def local_partitions(self) -> list[LocalPartition]:
        segments = (segment for step in self._steps for window in step.values() for segment in window)
        partitions = (segment.data.local_partition for segment in segments)
        return list({id(each): each for each in partitions if each is not None}.values())

    def log(self) -> dict[str, Any]:
        return {"profiled": True} if self._order.is_profiling else {}  # timed, not yet in the order to come

    def end_epoch(self, batch_spans: Sequence[Sequence[BatchSpan]]) -> list[Event]:
        if not self._order.end_epoch(batch_spans):
            return []
        known = {number: window for step in self._steps for number, window in step.items()}
        self._steps = self._build(self._order.steps, known)
        new = [window for step in self._steps for number, window in step.items() if number not in known]
        for _ in _load(self._job, new, []):
            pass
        return [Event("scheduled", self._order.to_json())]

    def artifacts(self) -> dict[str, Any]:
        return {} if self._order.ranks_share_batches else {"schedule": self._order}

    def shared_state_dict(self) -> dict[str, Any] | None:
        return self._order.state_dict()

    def _build(self, order: Steps, known: Step) -> list[Step]:
        """This rank's windows of every step; those that are not known are built."""
        job = self._job

        def window(number: int) -> Window:
            if number in known:
                return known[number]
            batch = job.batches[number]
            if job.uses_khop_cache:
                return job.khop_cache.load_window(batch)
            return window_of_batch(job.partitioned_graph, batch, job.settings.recompute)

        return [{number: window(number) for number in step[job.comm.rank]} for step in order]


@dataclass(frozen=True)
class StreamedValidation:
    """Validation windows that are built whenever they are iterated over, and released one by one."""

    job: Job

    def __iter__(self) -> Iterator[Window]:
        return self.job.evaluation_windows(self.job.problem.split.validation)


def load_khop_cache(job: Job) -> None:
    """Build the k-hop cache of this rank. All ranks call it: the graph is partitioned first."""
    _ = job.partitioned_graph
    job.progress.stage("caching what this rank's nodes read", 0, None)
    _ = job.khop_cache


def load_windows(job: Job, training: list[Window], validation: list[Window]) -> None:
    """Load features and examples of training windows, and of the validation windows that are scored."""
    split, done = job.problem.split, 0
    total = len(split.train) + len(split.validation)
    job.progress.stage(_PREPARING, done, total)
    scored = [window for window in validation if window[-1].times.stop > split.validation.start]
    for snapshots in _load(job, training, scored):
        done = min(done + snapshots, total)  # windows may overlap
        job.progress.stage(_PREPARING, done, total)


def _load(job: Job, training: list[Window], validation: list[Window]) -> Iterator[int]:
    """Load what needs no model; yields the number of snapshots of each segment."""
    problem = job.problem
    for window, trains in [*((each, True) for each in training), *((each, False) for each in validation)]:
        for segment in window:
            segment.data.prefetch()
            if segment.data.streams_features:
                segment.data.check_features()
            else:
                _ = segment.data.x
            _ = segment.data.sequences
            if trains and not problem.resamples_each_epoch:
                segment.data.prefetch(training_examples(problem, segment, problem.split.train, 0))
            elif not trains and problem.is_edge_level:
                list(evaluation_examples(problem, segment, segment.targets_in(problem.split.validation)))
            elif not trains:
                scored_cells(problem, segment, problem.split.validation)
            yield len(segment.times)
