"""Training, top to bottom: choose, bind, seed, make the model, cut windows; for epoch, for window: forward, backward,
clip, step; evaluate; save; log; at last the test part, with the best weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain
from os import PathLike
from time import perf_counter
from typing import Any

import torch
from torch import nn

from strobe.engine.checkpoint import State
from strobe.engine.choice import ModelLike
from strobe.engine.evaluate import score
from strobe.engine.interrupt import second_interrupt_kills
from strobe.engine.job import Given, Job, choose, prepared
from strobe.engine.machine import peak_bytes
from strobe.engine.passes import detached, window_loss
from strobe.engine.progress import Progress
from strobe.engine.record import Record, open_record
from strobe.engine.run import Run
from strobe.engine.settings import Settings
from strobe.engine.source import GraphLike
from strobe.engine.windows import Window
from strobe.errors import StrobeError
from strobe.tasks.base import Task
from strobe.view import Carry


class DivergedError(StrobeError):
    """The loss or the weights are no numbers any more."""

    def __init__(self, what: str, epoch: int, settings: Settings) -> None:
        clip = "--clip 1" if not settings.clip else f"a smaller --clip than {settings.clip:g}"
        super().__init__(
            f"{what} in epoch {epoch} is not a finite number: try a lower --lr (it was {settings.lr:g}) or {clip}. "
            "The last checkpoint, if there is one, is from before that."
        )


def train(
    graph: GraphLike | None,
    model: ModelLike | None,
    task: str | Task | None = None,
    *,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    data_dir: str | PathLike[str] | None = None,
    model_options: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
    **changes: Any,
) -> Run:
    """Trains a model on a graph for a task, and scores it on the test part with its best weights.

    Args:
        graph: a dynamic graph, the directory of one, or the name of a data set.
        model: a registered name, a torch module with ``width`` and ``forward(view)``, or a function that makes one
            from the number of input features.
        task: a name, a task, or None for the one that fits the graph's labels.
        out: the run directory: checkpoints, a record of every epoch, the result. Without it nothing is kept.
        resume: go on with the run in ``out``, to the weights it would have had if it had never stopped. What is
            left out (graph and model may be None) is as it was; ``epochs`` and ``patience`` may be raised.
        overwrite: replace the run in ``out``.
        changes: fields of ``Settings``: epochs, lr, window, seed, device, ….
    """
    began = perf_counter()
    watch = Progress() if progress is None else progress
    with open_record(out, resume=resume, overwrite=overwrite) as record, second_interrupt_kills():
        given = Given(graph, model, task, model_options, settings, changes, data_dir)
        job = choose(given, record.earlier, watch)
        state = begin(job, record, watch)
        before_s = sum(line["train_s"] + line["evaluate_s"] for line in state.history)  # of the run that is resumed
        windows = prepared(job, watch)
        baselines = {"validation": job.problem.baselines("validation")}
        record.event("prepared", prepare_s=round(perf_counter() - began, 6))
        try:
            fit(job, state, windows, record, watch)
        except KeyboardInterrupt:
            record.event("interrupted", epoch=state.epoch)
            raise
        run = finish(job, state, windows, baselines, watch)
        run.seconds, run.path = before_s + perf_counter() - began, record.path
        record.finish(run.to_json(), run.curve())
    return run


def begin(job: Job, record: Record, watch: Progress) -> State:
    """Fresh weights and their optimiser, or those of the run that is resumed."""
    model, head = job.make()
    weights = [*model.parameters(), *head.parameters()]
    # Fused, one call steps all weights. On a CPU it wakes all cores for that, which costs more than it saves: 0.1 ms
    # for a small model where nobody else needs a core, 100 ms where somebody does, against 0.5 ms without.
    fused = job.device.type == "cuda"
    optimiser = torch.optim.Adam(weights, lr=job.settings.lr, weight_decay=job.settings.weight_decay, fused=fused)
    state = State(model, head, optimiser)
    note = record.start(job.to_json(), state)
    if note is not None:
        watch.note(note)
    return state


def fit(job: Job, state: State, windows: tuple[list[Window], list[Window]], record: Record, watch: Progress) -> None:
    """Epochs until there are enough, or until the validation metric has stopped getting better."""
    settings, problem = job.settings, job.problem
    watch.begin({"epochs": settings.epochs, "epoch": state.epoch, "steps": len(windows[0]), "metric": problem.metric})
    for epoch in range(state.epoch, settings.epochs):
        if settings.patience and state.stale >= settings.patience:
            break
        started = perf_counter()
        loss = train_epoch(job, state, windows[0], epoch, watch)
        trained = perf_counter()
        state.epoch = epoch + 1
        line: dict[str, Any] = {"epoch": state.epoch, "step": state.epoch * len(windows[0]), "loss": loss}
        if state.epoch % settings.evaluate_every == 0:
            line["validation"] = score(state.model, state.head, problem, chain(*windows), problem.split.validation)
            state.judge(line["validation"].get(problem.metric), problem.higher_is_better)
        if not state.is_finite():
            raise DivergedError("a weight of the model", state.epoch, settings)
        line |= {"best": state.best, "best_epoch": state.best_epoch, "lr": settings.lr}
        line |= {"train_s": round(trained - started, 6), "evaluate_s": round(perf_counter() - trained, 6)}
        line |= peak_bytes(job.device)
        state.history.append(line)
        record.epoch(line, state)
        watch.epoch(line)
    record.save(state)


def train_epoch(job: Job, state: State, windows: list[Window], epoch: int, watch: Progress) -> float:
    """One pass over the training windows; the mean loss of their examples, each before the step it led to."""
    state.model.train()
    state.head.train()
    carry: Carry | None = None
    total, examples = 0.0, 0
    for step, window in enumerate(windows, 1):
        loss, count, carry = window_loss(state.model, state.head, job.problem, window, carry, epoch)
        carry = detached(carry)  # states go on to the next window, gradients do not come back from it
        if count:
            (loss / count).backward()
            if job.settings.clip:
                nn.utils.clip_grad_norm_(state.optimiser.param_groups[0]["params"], job.settings.clip)
            state.optimiser.step()
            state.optimiser.zero_grad()
            value = float(loss.detach())  # the only wait for the device in a step
            if not math.isfinite(value):
                raise DivergedError("the loss", epoch + 1, job.settings)
            total, examples = total + value, examples + count
        watch.step(epoch + 1, step)
    return total / max(examples, 1)


def finish(
    job: Job,
    state: State,
    windows: tuple[list[Window], list[Window]],
    baselines: dict[str, dict[str, dict[str, float]]],
    watch: Progress,
) -> Run:
    """Scores the test part, for the first and only time, with the weights that were best in validation."""
    watch.stage("scoring the test snapshots", 0, None)
    problem, split = job.problem, job.problem.split
    state.use_best()
    best_epoch = state.best_epoch or state.epoch
    judged = [line["validation"] for line in state.history if line["epoch"] == best_epoch and "validation" in line]
    scored = (state.model, state.head, problem)
    return Run(
        job=job,
        model=state.model,
        head=state.head,
        history=state.history,
        best_epoch=best_epoch,
        validation=judged[0] if judged else score(*scored, chain(*windows), split.validation),
        test=score(*scored, chain(*windows, job.stream(split.test)), split.test),
        baselines=baselines | {"test": problem.baselines("test")},
        memory=peak_bytes(job.device),
    )
