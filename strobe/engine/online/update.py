"""The update of the weights by a snapshot that has arrived: several steps, and the best weights on validation examples.

This is the live update of ROLAND (You et al. 2022): steps on one snapshot, all from the states before it, until the
validation loss has not fallen for ``patience`` steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from strobe.batching.base import StepResult, StreamingSource
from strobe.engine.checkpoint.serialization import copy_tree
from strobe.engine.checkpoint.store import TrainState, Weights, load_weights
from strobe.engine.context import RunContext
from strobe.engine.fit import train_step
from strobe.engine.forward import num_examples, window_examples, window_loss
from strobe.engine.settings import DivergedError
from strobe.engine.windows import Window
from strobe.schedule.base import Totals


@dataclass(frozen=True)
class UpdateResult:
    """Steps taken, and the mean training loss of all examples, each before the step it led to; None without any.

    ``best_step``: the step after which the validation loss was lowest, whose weights stay; 0: those before the first.
    """

    num_steps: int
    loss: float | None
    best_step: int | None = None
    validation_loss: float | None = None

    def log(self) -> dict[str, Any]:
        """Values for the snapshot's line of the record."""
        if self.best_step is None:
            return {}
        return {"best_step": self.best_step, "validation_loss": self.validation_loss}


@dataclass
class BestWeights:
    """The weights with the lowest validation loss so far, and the number of evaluations since."""

    loss: float = math.inf
    step: int = 0
    evaluations_since: int = 0
    weights: Weights | None = field(default=None, repr=False)

    def observe(self, loss: float, step: int, state: TrainState) -> None:
        """Keep a copy of the state's weights if their loss is lower. NaN never is."""
        self.evaluations_since += 1
        if loss < self.loss:
            self.loss, self.step, self.evaluations_since = loss, step, 0
            self.weights = copy_tree(state.weights())


def update(run: RunContext, t: int) -> UpdateResult:
    """Train on snapshot t as the settings say, and carry states past it. All ranks call it."""
    source, state, settings, times = run.source, run.state, run.settings, range(t, t + 1)
    assert isinstance(source, StreamingSource)
    if settings.reset_optimizer:
        state.optimizer.state.clear()
    validation = _with_examples(run, list(source.snapshot_validation_windows(run.job, times)))
    best = BestWeights()
    if validation:
        best.observe(validation_loss(run, validation), 0, state)
    totals, number = Totals(), 0
    run.sync.begin_epoch()
    for repeat in range(settings.steps_per_snapshot):
        for step in source.windows_of(run.job, times, repeat):
            number += 1
            result = _step(run, t, number, step, repeat)
            totals = Totals(totals.loss + result.loss, totals.num_examples + result.num_examples)
        if validation:
            best.observe(validation_loss(run, validation), number, state)
        has_stopped = settings.patience and best.evaluations_since >= settings.patience
        if has_stopped or not totals.num_examples:
            break
    run.sync.end_epoch()
    if best.weights is not None:
        load_weights(state.model, state.head, best.weights)
    source.advance(run.job, times, state.model, state.head)
    loss = totals.mean if totals.num_examples else None
    return UpdateResult(number, loss, best.step, best.loss) if best.weights is not None else UpdateResult(number, loss)


def _step(run: RunContext, t: int, number: int, step: dict[int, Window], epoch: int) -> StepResult:
    """The ``number``-th step on snapshot t."""
    run.state.model.train()
    run.state.head.train()
    run.ledger.at(t + 1, number)
    result, _ = train_step(run, step, None, epoch)
    if not math.isfinite(result.loss):
        raise DivergedError("the loss", t + 1, run.settings)
    run.progress.step(t + 1, number)
    return result


def _with_examples(run: RunContext, windows: Sequence[Window]) -> list[tuple[Window, list[Any]]]:
    """Windows and their examples; none where no rank has an example."""
    found = [(window, list(window_examples(run.job.problem, window, 0))) for window in windows]
    has_any = bool(found) and run.pacer.count(sum(num_examples(examples) for _, examples in found)) > 0
    return found if has_any else []


@torch.no_grad()
def validation_loss(run: RunContext, validation: Sequence[tuple[Window, list[Any]]]) -> float:
    """The mean loss of validation examples of all ranks, in evaluation mode."""
    state = run.state
    state.model.eval()
    state.head.eval()
    with run.ledger.phase("evaluate"):
        passes = (
            window_loss(state.model, state.head, run.job.problem, window, None, local) for window, local in validation
        )
        total = torch.stack([loss for loss, _ in passes]).sum()
        count = run.pacer.count(sum(num_examples(local) for _, local in validation))
        return run.pacer.loss(total) / count
