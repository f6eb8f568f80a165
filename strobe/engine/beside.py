"""Weights scored beside training, by rank 0 alone, which does not stop for it."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass

from torch import nn

from strobe.engine.checkpoint import Weights, load_weights
from strobe.engine.evaluate import score
from strobe.engine.job import Job
from strobe.engine.nest import copied
from strobe.tasks.base import Metrics


@dataclass(frozen=True, eq=False)
class Judged:
    """The weights after an epoch, and what they score in validation."""

    epoch: int
    weights: Weights
    metrics: Metrics


class Judge:
    """Scores one set of weights at a time in a thread, with cells of its own: the whole graph's.

    While it is busy no others are taken: training never waits, and with a slow judge fewer epochs are judged.
    """

    def __init__(self, job: Job, model: nn.Module, head: nn.Module) -> None:
        self._job = job.alone()
        self._model, self._head = deepcopy(model), deepcopy(head)
        self._thread = ThreadPoolExecutor(1, "judge")
        self._under_way: Future[Judged] | None = None
        self._windows = self._job.validation_windows()

    @property
    def is_free(self) -> bool:
        return self._under_way is None

    def take(self, epoch: int, weights: Weights) -> None:
        """Begins with the weights after an epoch, which training may go on to change."""
        assert self._under_way is None, "one at a time"
        self._under_way = self._thread.submit(self._score, epoch, copied(weights))

    def done(self, *, wait: bool = False) -> Judged | None:
        """What has been scored since this was last asked, if anything; raises what went wrong."""
        if self._under_way is None or not (wait or self._under_way.done()):
            return None
        judged, self._under_way = self._under_way.result(), None
        return judged

    def close(self) -> None:
        """Waits for what is under way."""
        self._thread.shutdown()

    def _score(self, epoch: int, weights: Weights) -> Judged:
        load_weights(self._model, self._head, weights)
        part = self._job.problem.split.validation
        return Judged(epoch, weights, score(self._model, self._head, self._job, self._windows, part))
