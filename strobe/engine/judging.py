"""When weights are scored: at the end of epochs, or beside the next ones."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from strobe.engine.beside import Judge, Judged
from strobe.engine.checkpoint import State
from strobe.engine.evaluate import score
from strobe.engine.job import Job, Prepared
from strobe.tasks.base import Metrics


class Judging:
    """The validation part's word on the weights of a run, for its history and for its patience. All ranks ask."""

    def __init__(self, job: Job, state: State, windows: Prepared) -> None:
        self._job, self._state, self._windows = job, state, windows
        self._beside = job.plan.schedule.judges_beside
        self._judge: Judge | None = None

    def __enter__(self) -> None:
        if self._beside and self._job.comm.rank == 0:
            self._judge = Judge(self._job, self._state.model, self._state.head)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._judge is not None:
            self._judge.close()

    def scored(self) -> Metrics:
        """What the weights score now, by all ranks."""
        job, state = self._job, self._state
        return score(state.model, state.head, job, self._windows.validation, job.problem.split.validation)

    def epoch_ends(self, scored: Metrics | None = None) -> dict[str, Any]:
        """What is known now of the weights after this epoch, or after an earlier one, as a part of its line.
        ``scored``: what they score, where somebody has asked already."""
        state, due = self._state, self._state.epoch % self._job.settings.evaluate_every == 0
        if not self._beside:
            return self._noted_now(self.scored() if scored is None else scored) if due or scored is not None else {}
        found = None
        if self._judge is not None:
            found = self._noted(self._judge.done())
            if due and self._judge.is_free:
                self._judge.take(state.epoch, state.weights())
        return self._told(found)

    def training_ends(self) -> None:
        """Waits for what is still being judged, and judges the last weights, if they have not been."""
        if not self._beside:
            return
        state, found = self._state, None
        with self._job.comm.rank_0_alone("evaluate"):
            if self._judge is not None:
                found = self._noted(self._judge.done(wait=True))
                if state.history and (found is None or found["judged"] != state.epoch):
                    self._judge.take(state.epoch, state.weights())
                    found = self._noted(self._judge.done(wait=True))
        found = self._told(found)
        if state.history:
            state.history[-1].update(found)
        state.best_weights = self._job.comm.share(state.best_weights, kind="weights")

    def _noted_now(self, metrics: Metrics) -> dict[str, Any]:
        """Takes note of what the latest weights score."""
        problem = self._job.problem
        self._state.judge(metrics.get(problem.metric), problem.higher_is_better)
        return {"validation": metrics}

    def _noted(self, judged: Judged | None) -> dict[str, Any] | None:
        """Takes note of what was scored beside training."""
        if judged is None:
            return None
        problem = self._job.problem
        value = judged.metrics.get(problem.metric)
        self._state.judge(value, problem.higher_is_better, epoch=judged.epoch, weights=judged.weights)
        return {"validation": judged.metrics, "judged": judged.epoch}

    def _told(self, found: dict[str, Any] | None) -> dict[str, Any]:
        """What rank 0 knows, on all ranks: they must stop training together."""
        state = self._state
        told = found, state.best, state.best_epoch, state.stale
        found, state.best, state.best_epoch, state.stale = self._job.comm.share(told, kind="answers")
        return found or {}
